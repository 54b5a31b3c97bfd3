//! The arguments.

use std::path::PathBuf;

use clap::Parser;
use tandem_common::call::service_uri;
use tonic::transport::Uri;

/// Run tasks without a pause, and compare the answers of equal tasks.
///
/// Each task has its own connection, so that a ClusterIP spreads the tasks over the pods. The exit code
/// is 1 if a task failed, or if two equal tasks had different answers.
#[derive(Debug, Parser)]
#[command(name = "tandem-load")]
pub(crate) struct Args {
    /// Address of render-svc, such as http://HOST:PORT. The name is resolved for each task.
    #[arg(value_parser = service_uri)]
    pub(crate) service: Uri,
    /// Tasks to run at least.
    #[arg(long, value_name = "NUMBER", default_value_t = 1)]
    pub(crate) tasks: usize,
    /// Continue after that number until standard input ends.
    #[arg(long)]
    pub(crate) until_end_of_input: bool,
    /// Tasks that run at the same time.
    #[arg(long, value_name = "NUMBER", default_value_t = 2)]
    pub(crate) parallel: usize,
    /// Tokens of each answer.
    #[arg(long, value_name = "NUMBER", default_value_t = 24)]
    pub(crate) tokens: u32,
    /// Seconds after which a task has failed.
    #[arg(long, value_name = "SECONDS", default_value_t = 300)]
    pub(crate) patience_seconds: u64,
    /// PEM file of the authorities that sign the service's certificate.
    #[arg(long, value_name = "FILE")]
    pub(crate) ca: Option<PathBuf>,
    /// Token file. Calls send its first token.
    #[arg(long, value_name = "FILE")]
    pub(crate) token_file: Option<PathBuf>,
}

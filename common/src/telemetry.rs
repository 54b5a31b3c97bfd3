//! Logs: to standard error, so that standard output stays the program's own.

use std::io;

use clap::{Args, ValueEnum};
use tracing_subscriber::EnvFilter;

/// Libraries that tell everyone how they build their tables. Filters that name them still count.
const QUIET: &str = "tk_encode=warn,ptr_hash=error";

/// How to log.
#[derive(Debug, Clone, Args)]
pub struct LogArgs {
    /// What to log: a level (error, warn, info, debug, trace), or directives such as `info,gen_svc=debug`.
    #[arg(long, env = "TANDEM_LOG", default_value = "info", value_name = "FILTER", help_heading = "Logging")]
    pub log: String,

    /// How log lines look: text for people, json for collectors.
    #[arg(long, env = "TANDEM_LOG_FORMAT", default_value = "text", value_name = "FORMAT", help_heading = "Logging")]
    pub log_format: LogFormat,
}

/// How log lines look.
#[derive(Debug, Clone, Copy, ValueEnum)]
pub enum LogFormat {
    /// One line for people.
    Text,
    /// One JSON object per line.
    Json,
}

/// Starts logging for the whole process. A second call changes nothing.
///
/// # Errors
/// A filter that does not parse.
pub fn init(args: &LogArgs) -> Result<(), tracing_subscriber::filter::ParseError> {
    let filter = EnvFilter::builder().parse(format!("{QUIET},{}", args.log))?;
    let lines = tracing_subscriber::fmt().with_env_filter(filter).with_writer(io::stderr);
    let _ = match args.log_format {
        LogFormat::Text => lines.try_init(),
        LogFormat::Json => lines.json().flatten_event(true).try_init(),
    };
    Ok(())
}

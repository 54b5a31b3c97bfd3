//! The arguments of `check`.

use std::path::PathBuf;
use std::time::Duration;

use tonic::transport::Uri;

use super::health_check::Check;
use crate::call::{Credentials, service_uri};

/// The service whose health is asked for, and the credentials.
#[derive(Debug, Clone, clap::Args)]
pub struct CheckArgs {
    /// Address of the running service; `http://` may be left out
    #[arg(value_name = "http[s]://HOST:PORT", value_parser = service_uri)]
    pub address: Uri,

    /// Full name of a gRPC service, such as tandem.task.v1.TaskService [default: the process as a
    /// whole]
    #[arg(long, default_value = "", hide_default_value = true, value_name = "NAME")]
    pub service: String,

    /// PEM file of the authorities that may sign the service's certificate. Required for https
    #[arg(long, value_name = "FILE")]
    pub ca: Option<PathBuf>,

    /// PEM file of the client certificate, if the service requires one
    #[arg(long, value_name = "FILE", requires = "key")]
    pub cert: Option<PathBuf>,

    /// PEM file of the client certificate's private key
    #[arg(long, value_name = "FILE", requires = "cert")]
    pub key: Option<PathBuf>,

    /// Name in the service's certificate [default: the host of the address]
    #[arg(long, value_name = "NAME")]
    pub server_name: Option<String>,

    /// File of the bearer token. Health checks need none, so it is sent only if given
    #[arg(long, value_name = "FILE")]
    pub token_file: Option<PathBuf>,

    /// Time for the whole check, in seconds
    #[arg(long, default_value_t = 5, value_name = "SECONDS")]
    pub timeout_seconds: u64,
}

impl From<CheckArgs> for Check {
    fn from(args: CheckArgs) -> Self {
        let identity = args.cert.zip(args.key).map(Into::into);
        Self {
            address: args.address,
            server_name: args.server_name,
            service: args.service,
            credentials: Credentials { ca: args.ca, identity, token_file: args.token_file },
            timeout: Duration::from_secs(args.timeout_seconds),
        }
    }
}

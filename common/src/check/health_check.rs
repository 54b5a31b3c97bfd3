//! One question for the health of a service.

use std::net::SocketAddr;
use std::time::Duration;

use tonic::transport::Uri;
use tonic::{Request, Status};
use tonic_health::pb::HealthCheckRequest;
use tonic_health::pb::health_check_response::ServingStatus;
use tonic_health::pb::health_client::HealthClient;

use crate::call::{ConnectionProblem, Credentials, CredentialsError};
use crate::status::{chain, printable};

/// What to ask, and whom.
#[derive(Debug, Clone)]
pub struct Check {
    /// The service's address.
    pub address: Uri,
    /// The name in the server's certificate, if it is not the address's host.
    pub server_name: Option<String>,
    /// The full name of a gRPC service; empty for the process as a whole.
    pub service: String,
    /// The credentials for the server.
    pub credentials: Credentials,
    /// The time for the whole check.
    pub timeout: Duration,
}

/// Why a check failed.
#[derive(Debug, thiserror::Error)]
pub enum CheckError {
    /// The credentials cannot be used.
    #[error(transparent)]
    Credentials(#[from] CredentialsError),
    /// The host name has no address.
    #[error("{address}: cannot look up the host name")]
    Lookup {
        /// The service's address.
        address: Uri,
        /// The cause.
        source: std::io::Error,
    },
    /// No connection, or no TLS handshake.
    #[error("{address}: cannot connect: {cause}{}", remedy(.cause))]
    Connect {
        /// The service's address.
        address: Uri,
        /// The error and its causes.
        cause: String,
    },
    /// The server rejected the call.
    #[error("{address}: {}: {}", code_of(.status), printable(.status.message()))]
    Rejected {
        /// The service's address.
        address: Uri,
        /// The server's status.
        status: Box<Status>,
    },
    /// The peer did not respond as a gRPC server.
    #[error("{address}: no response of a gRPC server: {cause}; {}", hint(.address, .cause))]
    NotGrpc {
        /// The service's address.
        address: Uri,
        /// The error and its causes.
        cause: String,
    },
    /// The service is not healthy.
    #[error("{address}: {name}")]
    Unhealthy {
        /// The service's address.
        address: Uri,
        /// The health, such as NOT_SERVING.
        name: &'static str,
    },
    /// No answer in time.
    #[error("{address}: no answer within {} s", .timeout.as_secs())]
    TimedOut {
        /// The service's address.
        address: Uri,
        timeout: Duration,
    },
}

fn code_of(status: &Status) -> &'static str {
    crate::status::code_name(status.code())
}

/// Returns the remedy of a failed connection, or an empty text.
fn remedy(cause: &str) -> String {
    ConnectionProblem::find(cause).map(|problem| format!("; {}", problem.remedy())).unwrap_or_default()
}

/// Returns the likely causes of a response that is not gRPC.
fn hint(address: &Uri, cause: &str) -> &'static str {
    if let Some(problem) = ConnectionProblem::find(cause) {
        return problem.remedy();
    }
    match address.scheme_str() {
        Some("https") => "the server may require a client certificate, or serve something else",
        _ => "the port may expect TLS (https://), or serve something else",
    }
}

fn rejected(address: Uri, status: Status) -> CheckError {
    // The status of an error on this side has a cause. tonic derives the status of a response
    // without one from its HTTP status.
    match std::error::Error::source(&status) {
        Some(cause) => CheckError::NotGrpc { address, cause: printable(&chain(cause)) },
        None => CheckError::Rejected { address, status: status.into() },
    }
}

impl Check {
    /// Asks for the health once.
    ///
    /// # Errors
    /// The service cannot be asked, or is not SERVING.
    pub async fn run(&self) -> Result<(), CheckError> {
        let (address, timeout) = (self.address.clone(), self.timeout);
        tokio::time::timeout(timeout, self.ask()).await.unwrap_or(Err(CheckError::TimedOut { address, timeout }))
    }

    async fn ask(&self) -> Result<(), CheckError> {
        let address = || self.address.clone();
        let endpoint = self.credentials.endpoint(&self.named()?, self.look_up().await?)?;
        let channel = endpoint
            .connect()
            .await
            .map_err(|error| CheckError::Connect { address: address(), cause: chain(&error) })?;
        let mut request = Request::new(HealthCheckRequest { service: self.service.clone() });
        if let Some(token) = self.credentials.token()? {
            token.add_to(request.metadata_mut());
        }
        let response = HealthClient::new(channel).check(request).await;
        let response = response.map_err(|status| rejected(address(), status))?;
        match response.into_inner().status() {
            ServingStatus::Serving => Ok(()),
            status => Err(CheckError::Unhealthy { address: address(), name: status.as_str_name() }),
        }
    }

    /// Returns the address with the name that the server's certificate must have.
    fn named(&self) -> Result<Uri, CheckError> {
        let Some(name) = &self.server_name else { return Ok(self.address.clone()) };
        let scheme = self.address.scheme_str().unwrap_or("https");
        let named = format!("{scheme}://{name}:{}", self.address.port_u16().unwrap_or_default());
        let failed =
            |error: http::uri::InvalidUri| CheckError::Connect { address: self.address.clone(), cause: chain(&error) };
        named.parse().map_err(failed)
    }

    async fn look_up(&self) -> Result<SocketAddr, CheckError> {
        let host = self.address.host().unwrap_or_default().trim_matches(['[', ']']);
        let failed = |source| CheckError::Lookup { address: self.address.clone(), source };
        let mut found =
            tokio::net::lookup_host((host, self.address.port_u16().unwrap_or_default())).await.map_err(failed)?;
        found.next().ok_or_else(|| failed(std::io::ErrorKind::NotFound.into()))
    }
}

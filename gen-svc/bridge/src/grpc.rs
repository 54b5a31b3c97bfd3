//! Calls of an engine over gRPC.

use std::error::Error as _;
use std::time::Duration;

use tandem_common::call::BearerToken;
use tandem_core::error::LoadError;
use tonic::transport::{Certificate, Channel, ClientTlsConfig, Endpoint};
use tonic::{Code, Request, Status};

use crate::call::{CallError, last_cause, shortened};
use crate::target::Target;

/// How long a connection may take to open.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(2);
/// How long an answer without a generation may take.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(10);
/// How long the answer about the engine's health may take.
const HEALTH_TIMEOUT: Duration = Duration::from_secs(1);
/// The most bytes of a message. The largest has the log-probabilities of a prompt.
pub(crate) const MAX_MESSAGE_BYTES: usize = 64 << 20;

/// The gRPC interface of an engine. Clones share its connection.
#[derive(Debug, Clone)]
pub(crate) struct Grpc {
    channel: Channel,
    token: Option<BearerToken>,
}

impl Grpc {
    /// Creates the channel. It connects at the first call.
    ///
    /// # Errors
    /// The file of authorities or of the token cannot be read, or an address with TLS has no authorities.
    pub(crate) fn new(target: &Target) -> Result<Self, LoadError> {
        let failed = |error: tonic::transport::Error| target.unusable(last_cause(&error));
        let endpoint = Endpoint::from_shared(target.url.clone()).map_err(failed)?;
        let mut endpoint = endpoint.connect_timeout(CONNECT_TIMEOUT).tcp_nodelay(true);
        if target.url.starts_with("https:") {
            let no_ca = || target.unusable("an https address of a gRPC engine needs --engine-ca".to_owned());
            let pem = target.authorities()?.ok_or_else(no_ca)?;
            let tls = ClientTlsConfig::new().ca_certificate(Certificate::from_pem(pem));
            endpoint = endpoint.tls_config(tls).map_err(failed)?;
        }
        Ok(Self { channel: endpoint.connect_lazy(), token: target.token()? })
    }

    pub(crate) fn channel(&self) -> Channel {
        self.channel.clone()
    }

    /// Returns a call that generates. It has no time limit.
    pub(crate) fn generation<T>(&self, message: T) -> Request<T> {
        let mut request = Request::new(message);
        self.token.iter().for_each(|token| token.add_to(request.metadata_mut()));
        request
    }

    /// Returns a call that generates nothing.
    pub(crate) fn question<T>(&self, message: T) -> Request<T> {
        let mut request = self.generation(message);
        request.set_timeout(ANSWER_TIMEOUT);
        request
    }

    /// Returns a call about the engine's health. An engine whose process is stopped does not answer.
    pub(crate) fn health<T>(&self, message: T) -> Request<T> {
        let mut request = self.generation(message);
        request.set_timeout(HEALTH_TIMEOUT);
        request
    }

    /// Returns the error of a status. Only a caller sees the engine's message.
    pub(crate) fn failure(&self, status: &Status) -> CallError {
        match status.code() {
            Code::ResourceExhausted => CallError::Busy,
            Code::InvalidArgument | Code::OutOfRange | Code::FailedPrecondition => {
                let message = status.message();
                let hidden = self.token.as_ref().map(|token| token.hide_in(message));
                CallError::Rejected(shortened(hidden.as_deref().unwrap_or(message)))
            }
            Code::Unauthenticated => CallError::Denied(401),
            Code::PermissionDenied => CallError::Denied(403),
            Code::Unimplemented => CallError::Denied(404),
            code => CallError::Lost(match status.source() {
                Some(_) => last_cause(status),
                None => format!("it answers {code:?}"),
            }),
        }
    }
}

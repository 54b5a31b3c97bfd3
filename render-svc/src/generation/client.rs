//! Calls to the generation service.

use std::collections::HashSet;
use std::net::SocketAddr;
use std::time::Duration;

use tandem_common::call::{BearerToken, CredentialsError};
use tandem_common::pb::generate::v1::{GenerateRequest, GenerateResponse};
use tokio::time::Instant;
use tonic::{Request, Streaming};

use super::convert;
use super::failure::{deadline_exceeded, failure, truncated, unavailable};
use super::pool::{Availability, Config, Pool};
use super::replica::Lease;
use super::replicas::HealthCounts;
use super::routing::PrefixKey;
use crate::error::Error;
use crate::task::generator::{FailureClass, GenerationError, GenerationEvent, GenerationStream, Generator};
use crate::task::request::GenerationRequest;

/// Timeout for the end of a call after its last event.
const CLOSE_TIMEOUT: Duration = Duration::from_millis(100);

/// Client of the generation service and its replicas.
#[derive(Debug)]
pub struct GenerationClient {
    pool: Pool,
    token: Option<BearerToken>,
}

impl GenerationClient {
    /// Starts to look for the replicas. They are connected to in the background.
    ///
    /// # Errors
    /// The credentials cannot be used.
    pub fn connect(config: &Config) -> Result<Self, CredentialsError> {
        let token = config.credentials.token()?;
        Ok(Self { pool: Pool::connect(config, token.clone())?, token })
    }

    /// Returns the number of replicas in each state of health.
    #[must_use]
    pub fn health_counts(&self) -> HealthCounts {
        self.pool.health_counts()
    }

    /// Returns whether models have healthy replicas.
    #[must_use]
    pub fn availability(&self) -> Availability {
        self.pool.availability()
    }

    /// Calls replicas in turn, other than the `tried` ones, until one accepts the request.
    async fn open(
        &self,
        request: &GenerationRequest,
        generated: &[u32],
        mut tried: HashSet<u64>,
    ) -> Result<GenerationCall, Error> {
        let key = PrefixKey::new(&request.options.cache_salt, &request.prompt);
        let deadline = request.deadline.map(Instant::from_std);
        let mut last = None;
        while let Some(lease) = self.pool.pick(&request.model, key, &tried, deadline).await {
            let call = self.call(convert::request(request, generated, lease.model_id()), deadline);
            let status = match lease.client().generate(call).await {
                Ok(response) => return Ok(GenerationCall { lease, stream: response.into_inner(), deadline }),
                Err(status) => status,
            };
            let GenerationError { class, error } = failure(status, deadline);
            if class == FailureClass::Permanent {
                return Err(error);
            }
            report(&lease, class);
            tried.insert(lease.replica().id());
            last = Some(error);
        }
        let is_late = deadline.is_some_and(|deadline| deadline <= Instant::now());
        Err(match last {
            Some(error) => error,
            None if is_late => Error::DeadlineExceeded,
            None => unavailable(&self.pool.explanation(&request.model)),
        })
    }

    /// Adds the remaining time and the credentials to a message.
    fn call(&self, message: GenerateRequest, deadline: Option<Instant>) -> Request<GenerateRequest> {
        let mut request = Request::new(message);
        if let Some(deadline) = deadline {
            request.set_timeout(deadline.saturating_duration_since(Instant::now()));
        }
        if let Some(token) = &self.token {
            token.add_to(request.metadata_mut());
        }
        request
    }
}

impl Generator for GenerationClient {
    type Stream = GenerationCall;

    async fn start(&self, request: &GenerationRequest) -> Result<GenerationCall, Error> {
        self.open(request, &[], HashSet::new()).await
    }

    async fn resume(
        &self,
        request: &GenerationRequest,
        generated: &[u32],
        failed: &GenerationCall,
        class: FailureClass,
    ) -> Result<GenerationCall, Error> {
        report(&failed.lease, class);
        let is_excluded = class == FailureClass::RetryElsewhere;
        let tried = is_excluded.then(|| failed.lease.replica().id()).into_iter().collect();
        self.open(request, generated, tried).await
    }
}

fn report(lease: &Lease, class: FailureClass) {
    if class == FailureClass::ReplicaDown {
        lease.mark_failed();
    }
}

/// A call to a replica. Dropping it cancels the call.
#[derive(Debug)]
pub struct GenerationCall {
    lease: Lease,
    stream: Streaming<GenerateResponse>,
    deadline: Option<Instant>,
}

impl GenerationCall {
    /// Returns the next message. The replica ends the call before the deadline; if it does not,
    /// this side ends it at the deadline, which is earlier than the caller's own.
    async fn message(&mut self) -> Result<GenerateResponse, GenerationError> {
        let message = self.stream.message();
        let message = match self.deadline {
            None => message.await,
            Some(deadline) => match tokio::time::timeout_at(deadline, message).await {
                Ok(message) => message,
                Err(_) => return Err(deadline_exceeded()),
            },
        };
        message.map_err(|status| failure(status, self.deadline))?.ok_or_else(truncated)
    }
}

impl GenerationStream for GenerationCall {
    async fn next(&mut self) -> Result<GenerationEvent, GenerationError> {
        loop {
            // Events that this version of the contract does not have are unset.
            if let Some(event) = self.message().await?.event {
                return Ok(convert::event(event));
            }
        }
    }

    async fn close(&mut self) {
        let _ = tokio::time::timeout(CLOSE_TIMEOUT, self.stream.message()).await;
    }

    fn replica(&self) -> SocketAddr {
        self.lease.replica().address()
    }
}

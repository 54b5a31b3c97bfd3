//! The limit of concurrent calls. A call beyond it is rejected before any work.

use std::sync::Arc;

use http::{Request, Response};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tonic::Status;
use tonic::body::Body;

use super::health::is_health;
use crate::call_layer::{BodyGuard, CallWork, on_body_end};
use crate::status::{Failure, Reason};

/// The limit of concurrent health checks.
const MAX_HEALTH_CALLS: usize = 1024;

/// The permits for calls, and separate ones for health checks.
#[derive(Debug, Clone)]
pub(super) struct Capacity {
    calls: Arc<Semaphore>,
    health: Arc<Semaphore>,
}

impl Capacity {
    pub(super) fn new(max_calls: usize) -> Self {
        let calls = Arc::new(Semaphore::new(max_calls.min(Semaphore::MAX_PERMITS)));
        Self { calls, health: Arc::new(Semaphore::new(MAX_HEALTH_CALLS)) }
    }

    pub(super) fn acquire(&self, request: &Request<Body>) -> CallPermit {
        let permits = if is_health(request) { &self.health } else { &self.calls };
        CallPermit(Arc::clone(permits).try_acquire_owned().ok())
    }
}

/// A call's permit, held until its response ends. None if the limit is reached.
#[derive(Debug)]
pub(super) struct CallPermit(Option<OwnedSemaphorePermit>);

impl BodyGuard for OwnedSemaphorePermit {}

impl CallWork for CallPermit {
    async fn run<E, F>(self, call: impl FnOnce() -> F + Send) -> Result<Response<Body>, E>
    where
        F: Future<Output = Result<Response<Body>, E>> + Send,
    {
        match self.0 {
            Some(permit) => Ok(on_body_end(call().await?, permit)),
            None => {
                let message = "the server has reached its limit of concurrent calls (--max-calls)";
                let failure = Failure::new(Reason::Overloaded, message);
                Ok(Status::from(failure).into_http())
            }
        }
    }
}

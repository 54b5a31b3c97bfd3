//! The limit of concurrent calls. A call beyond it is rejected before any work.

use std::sync::Arc;

use http::{Request, Response};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tonic::Status;
use tonic::body::Body;

use super::health::{is_health, is_health_check};
use crate::call_layer::{BodyGuard, CallWork, on_body_end};
use crate::status::{Failure, Reason};

/// The limit of concurrent streams of health changes (`Watch`), which need no token.
const MAX_WATCHES: usize = 1024;

/// The permits for calls, and separate ones for streams of health changes.
#[derive(Debug, Clone)]
pub(super) struct Capacity {
    calls: Arc<Semaphore>,
    watches: Arc<Semaphore>,
}

impl Capacity {
    pub(super) fn new(max_calls: usize) -> Self {
        let calls = Arc::new(Semaphore::new(max_calls.min(Semaphore::MAX_PERMITS)));
        Self { calls, watches: Arc::new(Semaphore::new(MAX_WATCHES)) }
    }

    pub(super) fn acquire(&self, request: &Request<Body>) -> CallPermit {
        if is_health_check(request) {
            return CallPermit::Unlimited;
        }
        let (permits, limit) =
            if is_health(request) { (&self.watches, Limit::Watches) } else { (&self.calls, Limit::Calls) };
        Arc::clone(permits).try_acquire_owned().map_or(CallPermit::Refused(limit), CallPermit::Held)
    }
}

/// A call's permit, held until its response ends.
#[derive(Debug)]
pub(super) enum CallPermit {
    /// The call needs no permit.
    Unlimited,
    Held(OwnedSemaphorePermit),
    /// The limit is reached.
    Refused(Limit),
}

/// The limit that a call exceeds.
#[derive(Debug)]
pub(super) enum Limit {
    Calls,
    Watches,
}

impl BodyGuard for OwnedSemaphorePermit {}

impl CallWork for CallPermit {
    async fn run<E, F>(self, call: impl FnOnce() -> F + Send) -> Result<Response<Body>, E>
    where
        F: Future<Output = Result<Response<Body>, E>> + Send,
    {
        let message = match self {
            Self::Unlimited => return call().await,
            Self::Held(permit) => return Ok(on_body_end(call().await?, permit)),
            Self::Refused(Limit::Calls) => "the server has reached its limit of concurrent calls (--max-calls)".into(),
            Self::Refused(Limit::Watches) => {
                format!("the server has reached its limit of {MAX_WATCHES} concurrent health watches; use Check")
            }
        };
        Ok(Status::from(Failure::new(Reason::Overloaded, message)).into_http())
    }
}

//! The limit of concurrent calls. A call beyond it is rejected before any work.

use http::{Request, Response};
use tonic::Status;
use tonic::body::Body;

use super::caller::Caller;
use super::health::is_health;
use super::health_capacity::{HealthCapacity, HealthLimit, PeerPermits};
use crate::call_layer::{BodyGuard, CallWork, on_body_end};
use crate::permits::{Exhausted, Permit, Permits};
use crate::status::{Failure, Reason};

/// The permits for calls, and separate ones for calls of the health service.
#[derive(Debug, Clone)]
pub(super) struct Capacity {
    calls: Permits,
    health: HealthCapacity,
}

impl Capacity {
    pub(super) fn new(max_calls: usize) -> Self {
        Self { calls: Permits::new(max_calls), health: HealthCapacity::new() }
    }

    pub(super) fn acquire(&self, request: &Request<Body>) -> CallPermit {
        if is_health(request) {
            let acquired = self.health.acquire(request);
            return acquired.map_or_else(|limit| CallPermit::Refused(Limit::Health(limit)), CallPermit::HeldByPeer);
        }
        let caller = request.extensions().get::<Caller>().cloned().unwrap_or_default();
        let limit = |exhausted| Limit::Calls(exhausted, self.calls.limit_per_caller());
        self.calls.acquire(&caller.id).map_err(limit).map_or_else(CallPermit::Refused, CallPermit::Held)
    }
}

/// A call's permit, held until its response ends.
#[derive(Debug)]
pub(super) enum CallPermit {
    Held(Permit),
    /// For a call of the health service.
    HeldByPeer(PeerPermits),
    /// The limit is reached.
    Refused(Limit),
}

/// The limit that a call exceeds.
#[derive(Debug)]
pub(super) enum Limit {
    /// With the limit of one caller.
    Calls(Exhausted, usize),
    Health(HealthLimit),
}

impl BodyGuard for Permit {}
impl BodyGuard for PeerPermits {}

impl CallWork for CallPermit {
    async fn run<E, F>(self, call: impl FnOnce() -> F + Send) -> Result<Response<Body>, E>
    where
        F: Future<Output = Result<Response<Body>, E>> + Send,
    {
        let message = match self {
            Self::Held(permit) => return Ok(on_body_end(call().await?, permit)),
            Self::HeldByPeer(permits) => return Ok(on_body_end(call().await?, permits)),
            Self::Refused(limit) => limit.message(),
        };
        Ok(Status::from(Failure::new(Reason::Overloaded, message)).into_http())
    }
}

impl Limit {
    fn message(self) -> String {
        match self {
            Self::Calls(Exhausted::All, _) => {
                "the server has reached its limit of concurrent calls (--max-calls)".to_owned()
            }
            Self::Calls(Exhausted::OfCaller, limit) => {
                format!("the caller has reached its limit of {limit} concurrent calls, three quarters of --max-calls")
            }
            Self::Health(limit) => limit.message(),
        }
    }
}

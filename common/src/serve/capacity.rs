//! The limit of concurrent calls. A call beyond it is rejected before any work.

use http::{Request, Response};
use tonic::Status;
use tonic::body::Body;

use super::caller::Caller;
use super::health::is_health;
use super::health_capacity::{HealthCapacity, HealthLimit};
use super::unsent::Unsent;
use crate::admission::{Exhausted, Permits};
use crate::call_layer::CallWork;
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

    /// Takes a permit for a call, which is held until its answer is sent.
    pub(super) fn acquire(&self, request: &Request<Body>) -> Admitted {
        if is_health(request) {
            let permits = self.health.acquire(request);
            return Admitted(permits.map(|permits| Unsent::hold(request, permits)).map_err(Limit::Health));
        }
        let caller = request.extensions().get::<Caller>().cloned().unwrap_or_default();
        let limit = |exhausted| Limit::Calls(exhausted, self.calls.limit_per_caller());
        Admitted(self.calls.acquire(&caller.id).map(|permit| Unsent::hold(request, permit)).map_err(limit))
    }
}

/// Whether a call was admitted. [`Unsent`] holds its permit.
#[derive(Debug)]
pub(super) struct Admitted(Result<(), Limit>);

/// The limit that a call exceeds.
#[derive(Debug)]
pub(super) enum Limit {
    /// With the limit of one caller.
    Calls(Exhausted, usize),
    Health(HealthLimit),
}

impl CallWork for Admitted {
    async fn run<E, F>(self, call: impl FnOnce() -> F + Send) -> Result<Response<Body>, E>
    where
        F: Future<Output = Result<Response<Body>, E>> + Send,
    {
        match self.0 {
            Ok(()) => call().await,
            Err(limit) => Ok(Status::from(Failure::new(Reason::Overloaded, limit.message())).into_http()),
        }
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

//! The limit of concurrent calls. A call beyond it is rejected before any work.

use http::{Request, Response};
use tonic::Status;
use tonic::body::Body;

use super::caller::{Caller, Peer};
use super::health::{is_health, is_health_check};
use crate::call_layer::{BodyGuard, CallWork, on_body_end};
use crate::permits::{Exhausted, Permit, Permits};
use crate::status::{Failure, Reason};

/// The limit of concurrent streams of health changes (`Watch`), which need no token.
const MAX_WATCHES: usize = 1024;
/// The limit of concurrent streams of health changes of one connection.
const MAX_CONNECTION_WATCHES: usize = 16;

/// The permits for calls, and separate ones for streams of health changes.
#[derive(Debug, Clone)]
pub(super) struct Capacity {
    calls: Permits,
    watches: Permits,
}

impl Capacity {
    pub(super) fn new(max_calls: usize) -> Self {
        let watches = Permits::with_caller_limit(MAX_WATCHES, MAX_CONNECTION_WATCHES);
        Self { calls: Permits::new(max_calls), watches }
    }

    pub(super) fn acquire(&self, request: &Request<Body>) -> CallPermit {
        if is_health_check(request) {
            return CallPermit::Unlimited;
        }
        let acquired = if is_health(request) {
            let connection = request.extensions().get::<Peer>().map_or(0, |peer| peer.connection);
            self.watches.acquire(&connection.to_string().into()).map_err(Limit::Watches)
        } else {
            let caller = request.extensions().get::<Caller>().cloned().unwrap_or_default();
            let limit = |exhausted| Limit::Calls(exhausted, self.calls.limit_per_caller());
            self.calls.acquire(&caller.id).map_err(limit)
        };
        acquired.map_or_else(CallPermit::Refused, CallPermit::Held)
    }
}

/// A call's permit, held until its response ends.
#[derive(Debug)]
pub(super) enum CallPermit {
    /// The call needs no permit.
    Unlimited,
    Held(Permit),
    /// The limit is reached.
    Refused(Limit),
}

/// The limit that a call exceeds.
#[derive(Debug)]
pub(super) enum Limit {
    /// With the limit of one caller.
    Calls(Exhausted, usize),
    Watches(Exhausted),
}

impl BodyGuard for Permit {}

impl CallWork for CallPermit {
    async fn run<E, F>(self, call: impl FnOnce() -> F + Send) -> Result<Response<Body>, E>
    where
        F: Future<Output = Result<Response<Body>, E>> + Send,
    {
        let message = match self {
            Self::Unlimited => return call().await,
            Self::Held(permit) => return Ok(on_body_end(call().await?, permit)),
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
            Self::Watches(Exhausted::All) => {
                format!("the server has reached its limit of {MAX_WATCHES} concurrent health watches; use Check")
            }
            Self::Watches(Exhausted::OfCaller) => {
                format!("the connection has reached its limit of {MAX_CONNECTION_WATCHES} health watches; use Check")
            }
        }
    }
}

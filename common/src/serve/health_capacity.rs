//! The limits of concurrent calls of the health service. They need no token and no permit of other
//! calls.

use http::Request;
use tonic::body::Body;

use super::caller::{Peer, network};
use super::health::is_health_check;
use crate::admission::{Exhausted, Permit, Permits};

/// The most concurrent streams of `Watch`, and the most of one address.
const WATCHES: [usize; 2] = [1024, 768];
/// The most concurrent calls of `Check` on a connection. Each is answered at once: only requests that are
/// not complete are many. A limit of an address would let one client hinder the checks of all others
/// behind its address. The number of connections bounds all.
const CONNECTION_CHECKS: usize = 32;

/// The permits for `Check`, by connection, and for `Watch`, by address.
#[derive(Debug, Clone)]
pub(super) struct HealthCapacity {
    checks: Permits,
    watches: Permits,
}

/// The limit that a call exceeds.
#[derive(Debug)]
pub(super) enum HealthLimit {
    AllWatches,
    WatchesOfAddress,
    ChecksOfConnection,
}

impl HealthCapacity {
    pub(super) fn new() -> Self {
        let [watches, of_address] = WATCHES;
        Self {
            checks: Permits::with_caller_limit(usize::MAX, CONNECTION_CHECKS),
            watches: Permits::with_caller_limit(watches, of_address),
        }
    }

    pub(super) fn acquire(&self, request: &Request<Body>) -> Result<Permit, HealthLimit> {
        let peer = request.extensions().get::<Peer>();
        if is_health_check(request) {
            let connection = peer.map_or(0, |peer| peer.connection).to_string();
            return self.checks.acquire(&connection.into()).map_err(|_| HealthLimit::ChecksOfConnection);
        }
        let address = peer.and_then(|peer| peer.address);
        let address = address.map_or_else(String::new, |address| network(address.ip()).to_string());
        self.watches.acquire(&address.into()).map_err(|exhausted| match exhausted {
            Exhausted::All => HealthLimit::AllWatches,
            Exhausted::OfCaller => HealthLimit::WatchesOfAddress,
        })
    }
}

impl HealthLimit {
    pub(super) fn message(&self) -> String {
        let [watches, of_address] = WATCHES;
        let (who, limit) = match self {
            Self::AllWatches => ("server", watches),
            Self::WatchesOfAddress => ("address", of_address),
            Self::ChecksOfConnection => ("connection", CONNECTION_CHECKS),
        };
        format!("the {who} has reached its limit of {limit} concurrent calls of this health method")
    }
}

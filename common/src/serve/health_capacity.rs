//! The limits of concurrent calls of the health service. They need no token and no permit of other
//! calls, so each connection has its own limit, and for `Watch` each address too.

use http::Request;
use tonic::body::Body;

use super::caller::{Peer, network};
use super::health::is_health_check;
use crate::permits::{Exhausted, Permit, Permits};

/// The limits of `Watch`, whose streams stay open.
const WATCHES: Limits = Limits { total: 1024, address: 768, connection: 16 };
/// The limits of `Check`, which is answered at once: only requests that are not complete are many.
/// The number of connections bounds them. A limit of an address would let one client hinder the
/// checks of all others behind its address.
const CHECKS: Limits = Limits { total: usize::MAX, address: usize::MAX, connection: 32 };

#[derive(Debug, Clone, Copy)]
struct Limits {
    total: usize,
    address: usize,
    connection: usize,
}

/// The permits for `Check` and for `Watch`.
#[derive(Debug, Clone)]
pub(super) struct HealthCapacity {
    checks: PeerCapacity,
    watches: PeerCapacity,
}

/// The permits for a method, by address and by connection.
#[derive(Debug, Clone)]
struct PeerCapacity {
    addresses: Permits,
    connections: Permits,
}

/// The permits of one call.
#[derive(Debug)]
pub(super) struct PeerPermits {
    _address: Permit,
    _connection: Permit,
}

/// The limit that a call exceeds.
#[derive(Debug)]
pub(super) enum HealthLimit {
    All(usize),
    OfAddress(usize),
    OfConnection(usize),
}

impl HealthCapacity {
    pub(super) fn new() -> Self {
        Self { checks: PeerCapacity::new(CHECKS), watches: PeerCapacity::new(WATCHES) }
    }

    pub(super) fn acquire(&self, request: &Request<Body>) -> Result<PeerPermits, HealthLimit> {
        let capacity = if is_health_check(request) { &self.checks } else { &self.watches };
        capacity.acquire(request.extensions().get())
    }
}

impl PeerCapacity {
    fn new(limits: Limits) -> Self {
        Self {
            addresses: Permits::with_caller_limit(limits.total, limits.address),
            connections: Permits::with_caller_limit(usize::MAX, limits.connection),
        }
    }

    fn acquire(&self, peer: Option<&Peer>) -> Result<PeerPermits, HealthLimit> {
        let address = peer.and_then(|peer| peer.address);
        let address = address.map_or_else(String::new, |address| network(address.ip()).to_string());
        let connection = peer.map_or(0, |peer| peer.connection).to_string();
        let of_connection = |_| HealthLimit::OfConnection(self.connections.limit_per_caller());
        let of_address = |exhausted| match exhausted {
            Exhausted::All => HealthLimit::All(self.addresses.limit()),
            Exhausted::OfCaller => HealthLimit::OfAddress(self.addresses.limit_per_caller()),
        };
        Ok(PeerPermits {
            _connection: self.connections.acquire(&connection.into()).map_err(of_connection)?,
            _address: self.addresses.acquire(&address.into()).map_err(of_address)?,
        })
    }
}

impl HealthLimit {
    pub(super) fn message(&self) -> String {
        let (who, limit) = match self {
            Self::All(limit) => ("server", limit),
            Self::OfAddress(limit) => ("address", limit),
            Self::OfConnection(limit) => ("connection", limit),
        };
        format!("the {who} has reached its limit of {limit} concurrent calls of this health method")
    }
}

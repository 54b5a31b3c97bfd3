//! Who calls: the identity that fairness, limits and logs use.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use http::{HeaderMap, Request};

use super::tls::ClientCertificate;
use super::tokens::{Admission, Holder};
use super::unsent::UnreadAnswers;
use crate::caller_id::{HEADER, TOKEN_PREFIX};

/// The limit of a forwarded caller.
const MAX_CALLER_BYTES: usize = 160;

/// A caller. Callers are identified by the name of their token, else by their certificate, else by their
/// address.
#[derive(Debug, Clone)]
pub struct Caller {
    /// The identity, such as `token:search`, `certificate:0f3a…` or `address:10.0.0.7`.
    pub id: Arc<str>,
    /// The highest priority that the caller's token allows. None: as the server.
    pub max_priority: Option<i32>,
}

impl Default for Caller {
    /// The caller of work that no connection brought, such as that of a command line.
    fn default() -> Self {
        Self { id: "local".into(), max_priority: None }
    }
}

impl Caller {
    /// Returns the caller of a request that the server has admitted.
    #[must_use]
    pub fn of<T>(request: &tonic::Request<T>) -> Self {
        request.extensions().get().cloned().unwrap_or_default()
    }

    /// Identifies the caller of a request.
    pub(super) fn identify<B>(request: &Request<B>, admission: &Admission) -> Self {
        let peer = request.extensions().get::<Peer>();
        let holder = admission.holder();
        let certificate = peer.and_then(|peer| peer.certificate.as_ref());
        let is_delegate = holder.is_some_and(|holder| holder.is_delegate)
            || certificate.is_some_and(|certificate| certificate.is_delegate);
        let forwarded = is_delegate.then(|| forwarded(request.headers())).flatten();
        let id = forwarded.unwrap_or_else(|| own_id(holder, peer));
        Self { id, max_priority: holder.and_then(|holder| holder.max_priority) }
    }
}

fn own_id(holder: Option<&Holder>, peer: Option<&Peer>) -> Arc<str> {
    if let Some(name) = holder.and_then(|holder| holder.name.as_deref()) {
        return format!("{TOKEN_PREFIX}{name}").into();
    }
    match peer {
        Some(Peer { certificate: Some(certificate), .. }) => format!("certificate:{}", certificate.digest).into(),
        Some(Peer { address: Some(address), .. }) => format!("address:{}", network(address.ip())).into(),
        _ => "address:unknown".into(),
    }
}

/// Returns the address, or for IPv6 the network of 64 bits, of which one caller has all addresses.
pub(super) fn network(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V6(address) => IpAddr::V6((address.to_bits() & (u128::MAX << 64)).into()),
        address => address,
    }
}

fn forwarded(headers: &HeaderMap) -> Option<Arc<str>> {
    let is_plain = |id: &&str| {
        let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"._-:".contains(&byte);
        (1..=MAX_CALLER_BYTES).contains(&id.len()) && id.bytes().all(is_plain)
    };
    headers.get(HEADER)?.to_str().ok().filter(is_plain).map(Arc::from)
}

/// The other end of a connection.
#[derive(Debug, Clone)]
pub(super) struct Peer {
    /// A number that no other connection of this process has.
    pub(super) connection: u64,
    pub(super) address: Option<SocketAddr>,
    pub(super) certificate: Option<ClientCertificate>,
    /// The connection's answers that are not read.
    pub(super) unread: Arc<UnreadAnswers>,
}

impl Peer {
    pub(super) fn new(address: Option<SocketAddr>, certificate: Option<ClientCertificate>) -> Self {
        static CONNECTIONS: AtomicU64 = AtomicU64::new(0);
        Self { connection: CONNECTIONS.fetch_add(1, Ordering::Relaxed), address, certificate, unread: Arc::default() }
    }
}

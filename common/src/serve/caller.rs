//! Who calls: the identity that fairness, limits and logs use.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use http::{HeaderMap, Request};

use super::tokens::{Admission, Holder};
use crate::caller_id::{HEADER, TOKEN_PREFIX};

/// The limit of a forwarded caller.
const MAX_CALLER_BYTES: usize = 160;

/// A caller. Callers are known by the name of their token, else by their certificate, else by their
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
        let own = || own_id(holder, peer);
        let id = match holder {
            Some(holder) if holder.is_delegate => forwarded(request.headers()).unwrap_or_else(own),
            _ => own(),
        };
        Self { id, max_priority: holder.and_then(|holder| holder.max_priority) }
    }
}

fn own_id(holder: Option<&Holder>, peer: Option<&Peer>) -> Arc<str> {
    if let Some(name) = holder.and_then(|holder| holder.name.as_deref()) {
        return format!("{TOKEN_PREFIX}{name}").into();
    }
    match peer {
        Some(Peer { certificate: Some(digest), .. }) => format!("certificate:{digest}").into(),
        Some(Peer { address: Some(address), .. }) => format!("address:{}", network(address.ip())).into(),
        _ => "address:unknown".into(),
    }
}

/// Returns the address, or for IPv6 the network of 64 bits, of which one caller has all addresses.
fn network(address: IpAddr) -> IpAddr {
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
    /// The start of the SHA-256 of the client's certificate, in hex.
    pub(super) certificate: Option<Arc<str>>,
}

impl Peer {
    pub(super) fn new(address: Option<SocketAddr>, certificate: Option<Arc<str>>) -> Self {
        static CONNECTIONS: AtomicU64 = AtomicU64::new(0);
        Self { connection: CONNECTIONS.fetch_add(1, Ordering::Relaxed), address, certificate }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn id(holder: Option<Holder>, peer: Peer, header: Option<&'static str>) -> String {
        let mut request = Request::new(());
        request.extensions_mut().insert(peer);
        if let Some(header) = header {
            request.headers_mut().insert(HEADER, header.parse().expect("a header"));
        }
        Caller::identify(&request, &Admission::Granted(holder.map(Arc::new))).id.to_string()
    }

    fn holder(name: Option<&str>, is_delegate: bool) -> Option<Holder> {
        Some(Holder { name: name.map(Arc::from), max_priority: None, is_delegate })
    }

    fn peer(address: &str, certificate: Option<&str>) -> Peer {
        Peer::new(Some(address.parse().expect("an address")), certificate.map(Arc::from))
    }

    #[test]
    fn callers_are_known_by_token_then_certificate_then_address() {
        let all = || peer("10.0.0.7:1234", Some("0f3a"));
        assert_eq!(id(holder(Some("search"), false), all(), None), "token:search");
        assert_eq!(id(holder(None, false), all(), None), "certificate:0f3a");
        assert_eq!(id(None, peer("10.0.0.7:1234", None), None), "address:10.0.0.7");
        assert_eq!(id(None, peer("[::ffff:10.0.0.7]:1234", None), None), "address:10.0.0.7");
        assert_eq!(id(None, peer("[2001:db8:0:1:2:3:4:5]:1234", None), None), "address:2001:db8:0:1::");
    }

    #[test]
    fn only_a_delegate_names_other_callers() {
        let front = || peer("10.0.0.7:1234", None);
        let header = Some("token:search");
        assert_eq!(id(holder(Some("front"), true), front(), header), "token:search");
        assert_eq!(id(holder(Some("front"), false), front(), header), "token:front");
        assert_eq!(id(None, front(), header), "address:10.0.0.7");
        assert_eq!(id(holder(Some("front"), true), front(), Some("a b")), "token:front");
    }
}

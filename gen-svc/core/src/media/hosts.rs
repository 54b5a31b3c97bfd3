//! The hosts from which images may be fetched.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::str::FromStr;

use http::Uri;

/// A host from which images at URLs are fetched.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ImageHost {
    /// The origin of the URLs.
    pub origin: Origin,
    /// True if it may have private addresses.
    pub may_be_private: bool,
}

impl FromStr for ImageHost {
    type Err = OriginError;

    /// Reads an origin, or `private:` and an origin.
    fn from_str(text: &str) -> Result<Self, OriginError> {
        let origin = text.trim().strip_prefix("private:");
        Ok(Self { origin: origin.unwrap_or(text).parse()?, may_be_private: origin.is_some() })
    }
}

/// A scheme, a host and a port.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Origin {
    is_https: bool,
    /// In lower case, without a final dot.
    host: String,
    port: u16,
}

/// A text is not the origin of a URL.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("must be HOST, HOST:PORT, or a URL of http or https without a path, or one of them after private:")]
pub struct OriginError;

impl Origin {
    /// Returns the origin of a URL of http or https without a user name.
    #[must_use]
    pub fn of(uri: &Uri) -> Option<Self> {
        let is_https = match uri.scheme_str()? {
            scheme if scheme.eq_ignore_ascii_case("https") => true,
            scheme if scheme.eq_ignore_ascii_case("http") => false,
            _ => return None,
        };
        let authority = uri.authority()?;
        let host = authority.host().trim_end_matches('.').to_ascii_lowercase();
        let has_port = authority.as_str().len() > authority.host().len();
        let port = match (authority.port_u16(), has_port) {
            (Some(port), _) => port,
            (None, false) if is_https => 443,
            (None, false) => 80,
            (None, true) => return None,
        };
        let is_name = |char: char| char.is_ascii_alphanumeric() || "-_.:[]".contains(char);
        let is_plain = !host.is_empty() && host.chars().all(is_name) && !authority.as_str().contains('@');
        is_plain.then_some(Self { is_https, host, port })
    }

    /// Returns the host.
    #[must_use]
    pub fn host(&self) -> &str {
        &self.host
    }
}

impl FromStr for Origin {
    type Err = OriginError;

    /// Reads a URL without a path, or a host with or without a port, which means https.
    fn from_str(text: &str) -> Result<Self, OriginError> {
        let text = text.trim().trim_end_matches('/');
        let url = if text.contains("://") { text.to_owned() } else { format!("https://{text}") };
        let uri: Uri = url.parse().map_err(|_| OriginError)?;
        let is_bare = uri.path_and_query().is_none_or(|path| path == "/");
        Self::of(&uri).filter(|_| is_bare).ok_or(OriginError)
    }
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let scheme = if self.is_https { "https" } else { "http" };
        write!(f, "{scheme}://{}:{}", self.host, self.port)
    }
}

/// Returns true if an address is one of the public internet.
///
/// Others: the special-purpose registries of IANA (RFC 6890 and its updates), which include loopback,
/// private, link-local, shared and reserved addresses; and IPv6 addresses that contain an IPv4 address,
/// unless that one is public.
#[must_use]
pub fn is_public(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(address) => is_public_v4(address),
        IpAddr::V6(address) => is_public_v6(address),
    }
}

fn is_public_v4(address: Ipv4Addr) -> bool {
    let [a, b, c, _] = address.octets();
    let is_shared = a == 100 && (64..128).contains(&b);
    let is_protocol = a == 192 && b == 0 && c == 0;
    let is_benchmark = a == 198 && (b == 18 || b == 19);
    let is_special = address.is_private()
        || address.is_loopback()
        || address.is_link_local()
        || address.is_documentation()
        || address.is_multicast();
    !(is_special || is_shared || is_protocol || is_benchmark || a == 0 || a >= 240)
}

fn is_public_v6(address: Ipv6Addr) -> bool {
    let segments = address.segments();
    let embedded = |high: u16, low: u16| {
        let ([a, b], [c, d]) = (high.to_be_bytes(), low.to_be_bytes());
        is_public_v4(Ipv4Addr::new(a, b, c, d))
    };
    match segments {
        [0x64, 0xff9b, 0, 0, 0, 0, high, low] => embedded(high, low), // NAT64
        [0x2002, high, low, ..] => embedded(high, low),               // 6to4
        [0x2001, second, ..] => second != 0xdb8 && second >= 0x200,   // documentation, protocol assignments
        [0x3fff, second, ..] => second >= 0x1000,                     // documentation
        [first, ..] => (first & 0xe000) == 0x2000,
    }
}

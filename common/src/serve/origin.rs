//! The origins of web pages: their form, and the rejection of requests from other pages.

use std::net::Ipv6Addr;
use std::sync::Arc;

use http::header::ORIGIN;
use http::{HeaderValue, Request, Response, StatusCode};
use tonic::body::Body;

use super::content_type::refused;
use crate::call_layer::CallWork;
use crate::log_limit::{LogLimit, PEER_INTERVAL};
use crate::status::printable;

/// The origin that allows any page.
pub(super) const ANY: &str = "*";

/// The text for the pages' authors and for operators.
const REFUSED: &str = "pages of this origin may not call the service (--allowed-origin)\n";
const EXPECTED: &str = "expected SCHEME://HOST[:PORT] without a path, such as https://chat.example.com, or *";

/// The maximum logged bytes of an origin, which the caller chooses.
const MAX_LOGGED_BYTES: usize = 256;

static LOG_LIMIT: LogLimit = LogLimit::new(PEER_INTERVAL);

/// Reads an origin and returns it as browsers write it (RFC 6454, section 6): in lower case, without
/// the default port.
pub(super) fn origin(text: &str) -> Result<HeaderValue, String> {
    if text == ANY {
        return Ok(HeaderValue::from_static(ANY));
    }
    let serialized = serialized(&text.to_ascii_lowercase()).ok_or(EXPECTED)?;
    serialized.parse().map_err(|_| EXPECTED.to_owned())
}

fn serialized(text: &str) -> Option<String> {
    let (scheme, rest) = text.split_once("://")?;
    let is_scheme = scheme.starts_with(|first: char| first.is_ascii_lowercase())
        && scheme.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"+-.".contains(&byte));
    let (host, port) = match rest.split_once(']') {
        Some((host, after)) => {
            let address: Ipv6Addr = host.strip_prefix('[')?.parse().ok()?;
            let port = if after.is_empty() { None } else { Some(after.strip_prefix(':')?) };
            (format!("[{address}]"), port)
        }
        None => {
            let (host, port) = rest.split_once(':').map_or((rest, None), |(host, port)| (host, Some(port)));
            let is_name = host.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-._".contains(&byte));
            (Some(host.to_owned()).filter(|_| is_name && !host.is_empty())?, port)
        }
    };
    let port = match port {
        Some(port) if port.bytes().all(|byte| byte.is_ascii_digit()) => Some(port.parse::<u16>().ok()?),
        Some(_) => return None,
        None => None,
    };
    match (scheme, port) {
        _ if !is_scheme => None,
        (_, Some(0)) => None,
        (_, None) | ("http", Some(80)) | ("https", Some(443)) => Some(format!("{scheme}://{host}")),
        (_, Some(port)) => Some(format!("{scheme}://{host}:{port}")),
    }
}

/// The origins whose pages may call.
#[derive(Debug, Clone)]
pub(super) struct Origins(Arc<[HeaderValue]>);

impl Origins {
    pub(super) fn new(allowed: &[HeaderValue]) -> Self {
        Self(allowed.into())
    }

    /// Programs that are no browsers send no origin.
    pub(super) fn check<B>(&self, request: &Request<B>) -> OriginCheck {
        let is_allowed = |origin| self.0.iter().any(|allowed| allowed == ANY || allowed == origin);
        OriginCheck { refused: request.headers().get_all(ORIGIN).iter().find(|&origin| !is_allowed(origin)).cloned() }
    }
}

/// Rejects a request of a page before it runs. Browsers only hide the response from a page of
/// another origin. A page whose host name was bound to the service's address reads it too.
#[derive(Debug)]
pub(super) struct OriginCheck {
    /// An origin of the request whose pages may not call.
    refused: Option<HeaderValue>,
}

impl CallWork for OriginCheck {
    async fn run<E, F>(self, call: impl FnOnce() -> F + Send) -> Result<Response<Body>, E>
    where
        F: Future<Output = Result<Response<Body>, E>> + Send,
    {
        let Some(origin) = self.refused else { return call().await };
        log_refused(&origin);
        Ok(refused(StatusCode::FORBIDDEN, REFUSED))
    }
}

/// Writes a warning unless one was written in the last seconds.
fn log_refused(origin: &HeaderValue) {
    let Some(unlogged) = LOG_LIMIT.permit() else { return };
    let text = String::from_utf8_lossy(origin.as_bytes());
    let origin = printable(&text[..text.floor_char_boundary(MAX_LOGGED_BYTES)]);
    tracing::warn!(origin, unlogged, "request of a foreign origin refused (--allowed-origin)");
}

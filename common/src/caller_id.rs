//! The form of a caller's identity, and its header in calls between services.

use http::{HeaderMap, HeaderName, HeaderValue};

/// The header in which a service that acts for its callers names them. Only a token that is marked
/// `delegate` and the certificates of `--tls-delegate` may send it.
pub(crate) const HEADER: HeaderName = HeaderName::from_static("x-tandem-caller");
/// The start of the identity of a caller with a named token.
pub(crate) const TOKEN_PREFIX: &str = "token:";

/// Returns the name of the caller's token. Only such callers are named in logs and metrics: their
/// number is known.
pub(crate) fn token_name(id: &str) -> Option<&str> {
    id.strip_prefix(TOKEN_PREFIX)
}

/// Adds the caller to the headers of a call that is made on its behalf.
pub(crate) fn add_to(id: &str, headers: &mut HeaderMap) {
    if let Ok(id) = HeaderValue::from_str(id) {
        headers.insert(HEADER, id);
    }
}

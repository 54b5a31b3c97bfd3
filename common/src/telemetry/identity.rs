//! The identity of an incoming call in log lines: its request id, and the name of its caller.

use std::fmt::Write as _;
use std::sync::Arc;

use http::{HeaderMap, HeaderName, HeaderValue};

use crate::caller_id;
use crate::random::random_u64;

/// The metadata key of request ids, in requests and in responses.
const REQUEST_ID: HeaderName = HeaderName::from_static("x-request-id");
/// The limit of a request id that a caller chooses.
const MAX_ID_BYTES: usize = 64;

/// The identity of a call. The work of the call has it in its context, and outgoing calls forward
/// the request id and the caller.
#[derive(Debug, Clone)]
pub(crate) struct Identity {
    /// Up to [`MAX_ID_BYTES`] letters, digits, `.`, `_` and `-`.
    pub(crate) request_id: Arc<str>,
    /// The id of the caller, which limits use.
    caller_id: Arc<str>,
}

impl Identity {
    /// Uses the caller's request id. Generates one if it is missing or not plain.
    pub(crate) fn new(headers: &HeaderMap, caller_id: Arc<str>) -> Self {
        let given = headers.get(REQUEST_ID).and_then(|id| id.to_str().ok()).filter(|id| is_plain(id));
        let request_id = given.map_or_else(|| format!("{:016x}{:016x}", random_u64(), random_u64()).into(), Arc::from);
        Self { request_id, caller_id }
    }

    /// Returns the name of the caller's token.
    pub(super) fn caller(&self) -> Option<&str> {
        caller_id::token_name(&self.caller_id)
    }

    /// Returns the id of the caller, which limits use.
    pub(super) fn caller_id(&self) -> &Arc<str> {
        &self.caller_id
    }

    /// Adds the request id and the caller to the headers of an outgoing request.
    pub(super) fn forward_in(&self, headers: &mut HeaderMap) {
        self.add_to(headers);
        caller_id::add_to(&self.caller_id, headers);
    }

    /// Adds the request id to the headers of a response.
    pub(crate) fn add_to(&self, headers: &mut HeaderMap) {
        if let Ok(id) = HeaderValue::from_str(&self.request_id) {
            headers.insert(REQUEST_ID, id);
        }
    }

    /// Returns ` request_id=… caller=…`.
    pub(super) fn to_text(&self) -> String {
        let mut text = format!(" request_id={}", self.request_id);
        if let Some(caller) = self.caller() {
            let _ = write!(text, " caller={caller}");
        }
        text
    }

    /// Returns `,"request_id":"…","caller":"…"`. The values need no escaping.
    pub(super) fn to_json(&self) -> String {
        let mut json = format!(r#","request_id":"{}""#, self.request_id);
        if let Some(caller) = self.caller() {
            let _ = write!(json, r#","caller":"{caller}""#);
        }
        json
    }
}

/// Returns true if a request id can be written into logs and headers as it is.
fn is_plain(id: &str) -> bool {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"._-".contains(&byte);
    (1..=MAX_ID_BYTES).contains(&id.len()) && id.bytes().all(is_plain)
}

//! Adds typed details to the errors that tonic creates, such as those for an unknown method or an
//! undecodable message.

use http::{HeaderMap, Response};
use tonic::body::Body;
use tonic::{Code, Status};

use super::unread_body::INVALID_CHUNK;
use crate::status::{Failure, Reason};

/// Parts of the messages of tonic's INTERNAL statuses for a body that is not a valid gRPC frame with
/// a valid protobuf message. tonic reports them in no other way.
///
/// Pinned by tests in `serve::transport` and `network::web` for tonic =0.14.9.
const DECODE_ERRORS: [&str; 12] = [
    "failed to decode Protobuf message",
    "Unexpected EOF decoding stream",
    "invalid compression flag",
    "compressed-flag but no grpc-encoding",
    "Error decompressing",
    "Missing request message",
    // Base64 of gRPC-Web.
    "Invalid symbol",
    "Invalid last symbol",
    "Invalid input length",
    "Invalid padding",
    "malformed base64",
    "unexpected frame type",
];
/// Parts of the messages of hyper and h2 for a request that ends early: the connection closed, or the
/// caller reset the stream.
const ABORTED: [&str; 4] =
    ["error reading a body from connection", "h2 protocol error", "stream error", "connection error"];
/// A part of tonic's UNIMPLEMENTED status for a compressed message.
const UNSUPPORTED_ENCODING: &str = "Content is compressed with";
/// The header that lists the supported encodings.
const ACCEPT_ENCODING: &str = "grpc-accept-encoding";

/// Replaces an error response without details by one with details. Returns any other response
/// unchanged.
pub(super) fn typed(response: Response<Body>) -> Response<Body> {
    match typed_status(response.headers()) {
        Some(status) => {
            let mut typed = status.into_http();
            if let Some(encodings) = response.headers().get(ACCEPT_ENCODING) {
                typed.headers_mut().insert(ACCEPT_ENCODING, encodings.clone());
            }
            typed
        }
        _ => response,
    }
}

/// Returns the error of headers or trailers with details, if they have an error without details.
pub(super) fn typed_status(headers: &HeaderMap) -> Option<Status> {
    let status = Status::from_header_map(headers)?;
    (status.code() != Code::Ok && status.details().is_empty()).then(|| failure(&status).into())
}

fn failure(status: &Status) -> Failure {
    let message = status.message();
    let has = |parts: &[&str]| parts.iter().any(|part| message.contains(part));
    match status.code() {
        // Health and reflection have tonic's own size limit.
        Code::OutOfRange => Failure::new(Reason::MessageTooLarge, message),
        Code::Internal if has(&[INVALID_CHUNK]) => Failure::new(Reason::MalformedMessage, INVALID_CHUNK),
        Code::Internal if has(&DECODE_ERRORS) => Failure::new(Reason::MalformedMessage, message),
        Code::Internal | Code::Unknown | Code::Unavailable | Code::Cancelled if has(&ABORTED) => {
            Failure::new(Reason::Transport, "the request ended before its message was complete")
                .with_code(Code::Cancelled)
        }
        Code::Unimplemented if has(&[UNSUPPORTED_ENCODING]) => Failure::new(Reason::UnsupportedEncoding, message),
        Code::Unimplemented => Failure::new(Reason::UnknownMethod, "the server does not have this method"),
        // Only health and reflection have such errors without details.
        Code::NotFound => Failure::new(Reason::UnknownName, message),
        Code::InvalidArgument => Failure::new(Reason::InvalidRequest, message).with_context("message_request"),
        code => Failure::new(Reason::Transport, message).with_code(code),
    }
}

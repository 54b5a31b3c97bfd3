//! Adds typed details to the errors that tonic creates, such as those for an unknown method or an
//! undecodable message.

use http::Response;
use tonic::body::Body;
use tonic::{Code, Status};

use crate::status::{Failure, Reason};

/// Parts of the messages of tonic's INTERNAL statuses for a body that is not a valid gRPC frame with
/// a valid protobuf message. tonic reports them in no other way.
///
/// Pinned by tests in `serve::transport` for tonic =0.14.9.
const DECODE_ERRORS: [&str; 6] = [
    "failed to decode Protobuf message",
    "Unexpected EOF decoding stream",
    "invalid compression flag",
    "compressed-flag but no grpc-encoding",
    "Error decompressing",
    "Missing request message",
];

/// Replaces an error response without details by one with details. Returns any other response
/// unchanged.
pub(super) fn typed(response: Response<Body>) -> Response<Body> {
    match Status::from_header_map(response.headers()) {
        Some(status) if status.code() != Code::Ok && status.details().is_empty() => {
            Status::from(failure(&status)).into_http()
        }
        _ => response,
    }
}

fn failure(status: &Status) -> Failure {
    let message = status.message();
    match status.code() {
        // Health and reflection have tonic's own size limit.
        Code::OutOfRange => Failure::new(Reason::MessageTooLarge, message),
        Code::Internal if DECODE_ERRORS.iter().any(|text| message.contains(text)) => {
            Failure::new(Reason::MalformedMessage, message)
        }
        Code::Unimplemented => Failure::new(Reason::UnknownMethod, "the server does not have this method"),
        code => Failure::new(Reason::Transport, message).with_code(code),
    }
}

//! Adds typed details to the errors that tonic creates, such as those for an unknown method or an
//! undecodable message.

use http::Response;
use tonic::body::Body;
use tonic::{Code, Status};

use crate::status::{Failure, Reason};

/// The start of the message of tonic's status for a body that is not valid protobuf. tonic reports
/// it in no other way.
///
/// Pinned by `transport::text_that_is_not_utf8_is_malformed` for tonic =0.14.9.
const DECODE_ERROR: &str = "failed to decode Protobuf message";

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
        Code::Internal if message.contains(DECODE_ERROR) => Failure::new(Reason::MalformedMessage, message),
        Code::Unimplemented => Failure::new(Reason::UnknownMethod, "the server does not have this method"),
        code => Failure::new(Reason::Transport, message).with_code(code),
    }
}

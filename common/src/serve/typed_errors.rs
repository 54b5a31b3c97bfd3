//! Gives the errors that the transport makes by itself the same typed details as ours: an undecodable or oversize message, a
//! method that does not exist.

use http::Response;
use tonic::body::Body;
use tonic::{Code, Status};

use crate::status::{Failure, Reason};

/// Replaces a response that is an error without details by one with them; passes any other.
pub(super) fn typed(response: Response<Body>) -> Response<Body> {
    match Status::from_header_map(response.headers()) {
        Some(status) if status.code() != Code::Ok && status.details().is_empty() => {
            Status::from(failure(&status)).into_http()
        }
        _ => response,
    }
}

/// What the transport's own status means. tonic says that a message is too large, or cannot be decoded, in words only.
fn failure(status: &Status) -> Failure {
    let message = status.message();
    match status.code() {
        Code::OutOfRange if message.contains("message length too large") => {
            Failure::new(Reason::MessageTooLarge, message)
        }
        Code::Internal if message.contains("failed to decode Protobuf message") => {
            Failure::new(Reason::MalformedMessage, message)
        }
        Code::Unimplemented => Failure::new(Reason::UnknownMethod, "this server has no such method"),
        code => Failure::new(Reason::Transport, message).with_code(code),
    }
}

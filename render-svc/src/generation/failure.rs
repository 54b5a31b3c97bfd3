//! Classifies the statuses of generation calls.

use std::time::Duration;

use tandem_common::status::{Reason, RetryClass};
use tokio::time::Instant;
use tonic::{Code, Status};
use tonic_types::{ErrorDetails, StatusExt as _};

use crate::error::Error;
use crate::task::generator::{FailureClass, GenerationError};

/// How much earlier than the deadline tonic's timer may fire.
const TIMER_TOLERANCE: Duration = Duration::from_millis(20);

/// Returns the failure for a status. Only a status that a service made has an `ErrorInfo`; the
/// transport's has none.
pub(super) fn failure(status: Status, deadline: Option<Instant>) -> GenerationError {
    let details = status.get_error_details();
    let Some(info) = details.error_info() else { return transport_failure(&status, deadline) };
    let Some(reason) = Reason::from_name(&info.reason) else {
        return GenerationError { class: FailureClass::Permanent, error: Error::Generation(Box::new(status)) };
    };
    if matches!(reason, Reason::ModelNotFound | Reason::TokenizerMismatch) {
        // The replica has another model since it was asked. The next health check asks again.
        return GenerationError { class: FailureClass::ReplicaDown, error: unavailable(status.message()) };
    }
    let error = match reason {
        // These are this service's credentials, not the caller's.
        Reason::CredentialsMissing | Reason::CredentialsInvalid => unavailable(status.message()),
        // The caller's request has no token ids: only the description applies to it, not the field.
        Reason::PromptTooLong | Reason::PromptOverLimit => {
            Error::PromptTooLong { reason, message: description(&status, &details) }
        }
        _ => Error::Generation(Box::new(status)),
    };
    GenerationError { class: failure_class(reason), error }
}

/// Returns the failure for a call that ended without its last event.
pub(super) fn truncated() -> GenerationError {
    GenerationError { class: FailureClass::ReplicaDown, error: unavailable("the output ended before its summary") }
}

/// Returns the failure for a call whose deadline passed.
pub(super) fn deadline_exceeded() -> GenerationError {
    GenerationError { class: FailureClass::Permanent, error: Error::DeadlineExceeded }
}

/// Returns the error for a service that cannot be reached.
pub(super) fn unavailable(message: &str) -> Error {
    Error::GenerationUnavailable { message: message.to_owned() }
}

fn transport_failure(status: &Status, deadline: Option<Instant>) -> GenerationError {
    if is_deadline(status, deadline) {
        return deadline_exceeded();
    }
    GenerationError { class: FailureClass::ReplicaDown, error: unavailable(status.message()) }
}

/// Returns true if the deadline ended the call. tonic reports its own timer as CANCELLED, but also
/// a connection that closes before it accepts a call.
fn is_deadline(status: &Status, deadline: Option<Instant>) -> bool {
    match status.code() {
        Code::DeadlineExceeded => true,
        Code::Cancelled => deadline.is_some_and(|deadline| deadline <= Instant::now() + TIMER_TOLERANCE),
        _ => false,
    }
}

fn description(status: &Status, details: &ErrorDetails) -> String {
    let violation = details.bad_request().and_then(|request| request.field_violations.first());
    violation.map_or_else(|| status.message().to_owned(), |violation| violation.description.clone())
}

/// Returns the class of failures with this reason.
fn failure_class(reason: Reason) -> FailureClass {
    match reason.retry_class() {
        RetryClass::Never => FailureClass::Permanent,
        RetryClass::Later => FailureClass::RetryElsewhere,
        RetryClass::OtherReplica => FailureClass::ReplicaDown,
    }
}

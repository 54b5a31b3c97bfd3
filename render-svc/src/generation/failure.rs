//! Classifies the statuses of generation calls.

use std::collections::HashSet;
use std::sync::LazyLock;
use std::time::Duration;

use tandem_common::pb::field_names;
use tandem_common::status::{Failure, Reason, RetryClass, printable};
use tokio::time::Instant;
use tonic::{Code, Status};
use tonic_types::{ErrorDetails, StatusExt as _};

use crate::error::Error;
use crate::task::generator::{FailureClass, GenerationError};

/// The fields that tasks and generation requests both have, by their names in both. The models'
/// names differ.
static SHARED_FIELDS: LazyLock<HashSet<String>> = LazyLock::new(|| {
    let generation = field_names("tandem.generate.v1.GenerateRequest");
    let task = field_names("tandem.task.v1.RunTaskRequest");
    generation.intersection(&task).filter(|field| *field != "model").cloned().collect()
});

/// The fields that name an image in a generation request.
const IMAGE_FIELDS: [&str; 2] = ["hf_messages_json", "media"];

/// How much earlier than the deadline tonic's timer may fire.
const TIMER_TOLERANCE: Duration = Duration::from_millis(20);
/// How much earlier than the deadline a replica may end an output. It leaves time for its last
/// event, and `grpc-timeout` has a resolution of a second for long timeouts.
const DEADLINE_TOLERANCE: Duration = Duration::from_secs(2);
/// The start of prost's error for a message that is not of its type.
const DECODE_ERROR: &str = "failed to decode Protobuf message";

/// Returns the failure for a status. Only a status that a service made has an `ErrorInfo`; the
/// transport's has none.
pub(super) fn failure(status: Status, deadline: Option<Instant>) -> GenerationError {
    let details = status.get_error_details();
    if details.error_info().is_some_and(|info| info.reason == Reason::RequestTooSlow.name()) {
        // This service or the network was slow, and the replica is not at fault.
        return GenerationError { class: FailureClass::RetryElsewhere, error: unavailable(status.message()) };
    }
    if status.code() == Code::DeadlineExceeded && !is_late(deadline) {
        return faulty("reported DEADLINE_EXCEEDED before the deadline");
    }
    let Some(info) = details.error_info() else { return transport_failure(&status, deadline) };
    let Some(reason) = Reason::from_name(&info.reason) else {
        let message = printable(&format!("{}: {}", info.reason, status.message()));
        let failure = Failure::new(Reason::GenerationFailed, message).with_code(status.code());
        let class = class_of_code(status.code(), details.retry_info().is_some());
        return GenerationError { class, error: Error::Generation(Box::new(failure)) };
    };
    if matches!(reason, Reason::ModelNotFound | Reason::TokenizerMismatch) {
        // The replica has another model since it was asked. The next health check asks again.
        return GenerationError { class: FailureClass::ReplicaDown, error: unavailable(status.message()) };
    }
    if matches!(reason, Reason::CredentialsMissing | Reason::CredentialsInvalid) {
        // These are this service's credentials, not the caller's. Another replica may accept them.
        return GenerationError { class: FailureClass::RetryElsewhere, error: unavailable(status.message()) };
    }
    let error = Error::Generation(Box::new(task_failure(reason, &status, &details)));
    GenerationError { class: failure_class(reason), error }
}

/// Returns the failure of a call for a task that a replica has accepted. So the request is valid, and a
/// rejection is not the caller's fault: the replica, or an earlier one whose output it continues, is.
pub(super) fn failure_after_acceptance(failed: GenerationError) -> GenerationError {
    match failed {
        GenerationError { class: FailureClass::Doubtful, error: Error::Generation(failure) }
            if !matches!(failure.code(), Code::DeadlineExceeded | Code::Internal) =>
        {
            let message = format!("a replica rejected a task that was accepted before: {}", failure.message());
            GenerationError { class: FailureClass::Rejected, error: unavailable(&message) }
        }
        failed => failed,
    }
}

/// Returns the failure of a task for a status. A field that only a generation request has is the
/// task's conversation, from which it was made. Fields of images are kept: the task has the paths of
/// their blocks.
fn task_failure(reason: Reason, status: &Status, details: &ErrorDetails) -> Failure {
    let violation = details.bad_request().and_then(|request| request.field_violations.first());
    let Some(violation) = violation else {
        return Failure::new(reason, printable(status.message())).with_code(status.code());
    };
    let root = violation.field.split(['.', '[']).next().unwrap_or_default();
    let is_kept = SHARED_FIELDS.contains(root) || IMAGE_FIELDS.contains(&root);
    let field = if is_kept { &violation.field } else { "conversation" };
    Failure::new(reason, printable(&violation.description)).with_code(status.code()).with_field(field)
}

/// Returns the failure for a call that ended without its last event.
pub(super) fn truncated() -> GenerationError {
    GenerationError { class: FailureClass::ReplicaDown, error: unavailable("the output ended before its summary") }
}

/// Returns the failure for a replica that breaks the contract.
pub(super) fn faulty(problem: &str) -> GenerationError {
    let error = unavailable(&format!("the replica broke the contract: it {problem}"));
    GenerationError { class: FailureClass::Faulty, error }
}

/// Returns the failure for a replica that does not answer.
pub(super) fn stuck(problem: &str) -> GenerationError {
    GenerationError { class: FailureClass::Stuck, error: unavailable(&format!("the replica is stuck: {problem}")) }
}

/// Returns true if the deadline has passed, or passes so soon that a replica may end the output.
pub(super) fn is_late(deadline: Option<Instant>) -> bool {
    deadline.is_some_and(|deadline| deadline <= Instant::now() + DEADLINE_TOLERANCE)
}

/// Returns the failure for a call whose deadline passed.
pub(super) fn deadline_exceeded() -> GenerationError {
    GenerationError { class: FailureClass::Permanent, error: Error::DeadlineExceeded }
}

/// Returns the error for a service that cannot be reached.
pub(super) fn unavailable(message: &str) -> Error {
    Error::GenerationUnavailable { message: printable(message) }
}

fn transport_failure(status: &Status, deadline: Option<Instant>) -> GenerationError {
    if is_deadline(status, deadline) {
        return deadline_exceeded();
    }
    if is_unreadable(status) {
        return faulty(&format!("sent a message that cannot be read: {}", status.message()));
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

/// Returns true for the two statuses that tonic makes of a message: it is too large, or it is not of
/// its type.
fn is_unreadable(status: &Status) -> bool {
    match status.code() {
        Code::OutOfRange => true,
        Code::Internal => status.message().starts_with(DECODE_ERROR),
        _ => false,
    }
}

/// Returns the class of failures with a reason of a later version, by their code and whether they have RetryInfo.
fn class_of_code(code: Code, has_retry_info: bool) -> FailureClass {
    match code {
        Code::DeadlineExceeded => FailureClass::Permanent,
        Code::Unavailable | Code::Aborted | Code::Unauthenticated | Code::PermissionDenied => {
            FailureClass::RetryElsewhere
        }
        _ if has_retry_info => FailureClass::RetryElsewhere,
        _ => FailureClass::Doubtful,
    }
}

/// Returns the class of failures with this reason.
fn failure_class(reason: Reason) -> FailureClass {
    match reason.retry_class() {
        RetryClass::Never if reason.code() == Code::DeadlineExceeded => FailureClass::Permanent,
        RetryClass::Never => FailureClass::Doubtful,
        RetryClass::Later => FailureClass::RetryElsewhere,
        RetryClass::OtherReplica => FailureClass::ReplicaDown,
    }
}

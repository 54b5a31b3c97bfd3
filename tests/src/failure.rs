//! Failures as a client reads them: code, reason and field.

use tandem_common::status::{Reason, RetryClass};
use tonic::{Code, Status};
use tonic_types::{ErrorDetails, RpcStatusExt, StatusExt};

use crate::error_texts;

/// The fields of a failure that a client reads.
#[derive(Debug)]
pub struct Failed {
    pub code: Code,
    pub reason: String,
    pub field: Option<String>,
}

/// Checks a failure and returns its fields. Panics unless the status has an ErrorInfo of the domain
/// `tandem`, and the further details that its reason requires.
#[track_caller]
pub fn failed(status: &Status) -> Failed {
    let details = status.get_error_details();
    let info = details.error_info().unwrap_or_else(|| panic!("no ErrorInfo: {status:?}"));
    assert_eq!(info.domain, "tandem");
    let reason = Reason::from_name(&info.reason).unwrap_or_else(|| panic!("unknown reason: {status:?}"));
    if matches!(reason, Reason::ModelNotFound | Reason::AdapterNotFound | Reason::TemplateNotFound) {
        assert!(details.resource_info().is_some(), "{status:?}");
    }
    if reason.retry_class() == RetryClass::Later {
        let delay = details.retry_info().and_then(|retry| retry.retry_delay).unwrap_or_else(|| panic!("{status:?}"));
        let pushback = status.metadata().get("grpc-retry-pushback-ms").and_then(|value| value.to_str().ok());
        assert_eq!(pushback, Some(delay.as_millis().to_string().as_str()), "{status:?}");
    }
    let violations = details.bad_request().map(|bad| &bad.field_violations);
    let field = violations.and_then(|violations| violations.first()).map(|violation| violation.field.clone());
    Failed { code: status.code(), reason: info.reason.clone(), field }
}

/// Returns the details of a failure that is part of a response. Panics if they cannot be decoded.
#[track_caller]
pub fn details(failure: &tonic_types::Status) -> ErrorDetails {
    failure.check_error_details().unwrap_or_else(|error| panic!("{error}: {failure:?}"))
}

/// Returns the path of the invalid field. Empty if no field is invalid.
pub fn field(details: &ErrorDetails) -> &str {
    details.bad_request().map_or("", |invalid| &invalid.field_violations[0].field)
}

/// Checks a failed call: its code, reason and field, and its message against the golden text of a
/// case.
#[track_caller]
pub fn is_failed<T: std::fmt::Debug>(
    case: &str,
    result: Result<T, Status>,
    code: Code,
    reason: &str,
    field: Option<&str>,
) {
    let status = result.expect_err("the call fails");
    let Failed { code: c, reason: r, field: f } = failed(&status);
    assert_eq!((c, r.as_str(), f.as_deref()), (code, reason, field));
    error_texts::check(case, status.message());
}

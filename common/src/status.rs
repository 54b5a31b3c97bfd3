//! Failures as callers see them: on the wire a gRPC status with `google.rpc` details, on the
//! command line a JSON object.

mod code;
mod errors_page;
mod reason;

use std::collections::HashMap;

use prost::Message as _;
use serde_json::{Value, json};
use tonic::metadata::{MetadataMap, MetadataValue};
use tonic::{Code, Status};
use tonic_types::{ErrorDetails, StatusExt};

pub use code::code_name;
pub use errors_page::errors_page;
pub use reason::{Reason, RetryClass, UnknownReason};

use crate::field::Path;

/// The domain of every `ErrorInfo`.
pub const DOMAIN: &str = "tandem";

/// The trailer that delays the retries which gRPC libraries make by themselves, in milliseconds. They
/// do not read RetryInfo.
const PUSHBACK: &str = "grpc-retry-pushback-ms";

/// A failure for the caller.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Failure {
    code: Code,
    reason: Reason,
    message: String,
    field: Option<Path>,
    /// True if the field is not put before the message.
    is_standalone: bool,
    line: Option<u32>,
    resource: Option<(&'static str, String)>,
}

impl Failure {
    /// Creates a failure with the code of its reason. Programs compare the reason; people read the
    /// message.
    #[must_use]
    pub fn new(reason: Reason, message: impl Into<String>) -> Self {
        Self {
            code: reason.code(),
            reason,
            message: clip(message.into()),
            field: None,
            is_standalone: false,
            line: None,
            resource: None,
        }
    }

    /// Replaces the reason's code.
    #[must_use]
    pub fn with_code(self, code: Code) -> Self {
        Self { code, ..self }
    }

    /// Adds the ResourceInfo of a missing resource: its kind, such as `model`, and its name.
    #[must_use]
    pub fn with_resource(self, kind: &'static str, name: impl Into<String>) -> Self {
        Self { resource: Some((kind, clip(name.into()))), ..self }
    }

    /// Creates an INVALID_REQUEST failure for one request field, such as `conversation.messages[2].role`.
    #[must_use]
    pub fn invalid(field: impl Into<Path>, message: impl Into<String>) -> Self {
        Self::new(Reason::InvalidRequest, message).with_field(field)
    }

    /// Adds the request field at fault; [`Failure::message`] puts it before the message.
    #[must_use]
    pub fn with_field(self, field: impl Into<Path>) -> Self {
        Self { field: Some(field.into()), ..self }
    }

    /// Adds the request field at fault without repeating it in the message.
    #[must_use]
    pub fn with_context(self, field: impl Into<Path>) -> Self {
        Self { is_standalone: true, ..self.with_field(field) }
    }

    /// Replaces the field's path. `locate` returns the new path and, for a field with JSON text, the
    /// path in that text, which is put before the message.
    #[must_use]
    pub fn locate(mut self, locate: impl FnOnce(&Path) -> (Path, Path)) -> Self {
        let Some((field, within)) = self.field.as_ref().map(locate) else { return self };
        let within = within.to_string();
        if !within.is_empty() {
            self.message = clip(format!("{within}: {}", self.message));
        }
        self.with_field(field)
    }

    /// Adds the line of the chat template at fault, counted from 1.
    #[must_use]
    pub fn with_template_line(self, line: u32) -> Self {
        Self { line: Some(line), ..self }
    }

    /// Returns the gRPC code.
    #[must_use]
    pub fn code(&self) -> Code {
        self.code
    }

    /// Returns the reason.
    #[must_use]
    pub fn reason(&self) -> Reason {
        self.reason
    }

    /// Returns the path of the request field at fault as text.
    fn field(&self) -> Option<String> {
        self.field.as_ref().map(|field| clip(field.to_string()))
    }

    /// Returns the message, after the field from [`Failure::with_field`].
    #[must_use]
    pub fn message(&self) -> String {
        match self.field() {
            Some(field) if !self.is_standalone => format!("{field}: {}", self.message),
            _ => self.message.clone(),
        }
    }

    /// Returns the line of the chat template at fault.
    #[must_use]
    pub fn line(&self) -> Option<u32> {
        self.line
    }

    fn details(&self) -> ErrorDetails {
        let line = self.line.map(|line| ("line".to_owned(), line.to_string()));
        let mut details = ErrorDetails::with_error_info(self.reason.name(), DOMAIN, HashMap::from_iter(line));
        if let Some(field) = self.field() {
            details.add_bad_request_violation(field, &self.message);
        }
        if let Some(delay) = self.reason.retry_delay() {
            details.set_retry_info(Some(delay));
        }
        if let Some((kind, name)) = &self.resource {
            details.set_resource_info(*kind, name, "", &self.message);
        }
        details
    }

    /// Returns `{"code", "reason", "message", "field"?, "line"?}`, the form of the command line.
    #[must_use]
    pub fn to_json(&self) -> Value {
        let mut object = json!({"code": code_name(self.code), "reason": self.reason.name(), "message": self.message});
        if let Some(field) = self.field() {
            object["field"] = json!(field);
        }
        if let Some(line) = self.line {
            object["line"] = json!(line);
        }
        object
    }
}

impl From<Failure> for Status {
    fn from(failure: Failure) -> Self {
        let mut metadata = MetadataMap::new();
        if let Some(delay) = failure.reason.retry_delay() {
            metadata.insert(PUSHBACK, MetadataValue::from(delay.as_millis().try_into().unwrap_or(u64::MAX)));
        }
        Status::with_error_details_and_metadata(failure.code, failure.message(), failure.details(), metadata)
    }
}

/// The failure as a part of a response, such as that of one request of a batch.
impl From<Failure> for tonic_types::Status {
    fn from(failure: Failure) -> Self {
        let status = Status::from(failure);
        // tonic has encoded the details as this message.
        Self::decode(status.details()).unwrap_or_default()
    }
}

/// Truncates text that may come from the caller: a status is sent in headers, which clients limit
/// to about 8 KiB.
fn clip(mut text: String) -> String {
    const MAX_BYTES: usize = 1024;
    if text.len() > MAX_BYTES {
        text.truncate(text.floor_char_boundary(MAX_BYTES));
        text.push('…');
    }
    text
}

/// Returns a peer's text with its control characters escaped. Terminals interpret them, and text logs
/// write them as they are.
#[must_use]
pub fn printable(text: &str) -> String {
    let escape = |c: char| if c.is_control() { c.escape_default().to_string() } else { c.to_string() };
    text.chars().map(escape).collect()
}

/// Returns an error and its causes in one line.
#[must_use]
pub fn chain(error: &dyn std::error::Error) -> String {
    let causes = std::iter::successors(error.source(), |cause| cause.source());
    causes.fold(error.to_string(), |text, cause| format!("{text}: {cause}"))
}

//! Reads the JSON answers of engines.

use serde_json::Value;

use crate::call::CallError;

/// Parses an event of a stream, which may be an engine's error.
///
/// # Errors
/// It is no JSON, or an error of the engine.
pub(crate) fn event(data: &str) -> Result<Value, CallError> {
    let event: Value = serde_json::from_str(data).map_err(|_| contradiction("an event"))?;
    let is_error =
        event.get("error").is_some_and(|error| !error.is_null()) || event.get("code").is_some_and(Value::is_number);
    if is_error { Err(CallError::Lost("the stream has an error".to_owned())) } else { Ok(event) }
}

/// Returns the error of an answer whose part is not as documented.
pub(crate) fn contradiction(part: &str) -> CallError {
    CallError::Contradiction(format!("{part} is not as documented"))
}

/// Returns a number of things. None: it is none.
pub(crate) fn number(value: &Value) -> Option<usize> {
    value.as_u64().and_then(|number| usize::try_from(number).ok())
}

/// Returns a number of things.
///
/// # Errors
/// It is none.
pub(crate) fn count(value: &Value) -> Result<usize, CallError> {
    number(value).ok_or_else(|| contradiction("a count"))
}

/// Returns a token id.
///
/// # Errors
/// It is none.
pub(crate) fn id(value: &Value) -> Result<u32, CallError> {
    value.as_u64().and_then(|id| u32::try_from(id).ok()).ok_or_else(|| contradiction("a token"))
}

/// Returns a list of token ids.
///
/// # Errors
/// It is none.
pub(crate) fn ids(value: &Value) -> Result<Vec<u32>, CallError> {
    items(value, "tokens")?.iter().map(id).collect()
}

/// Returns a log-probability.
///
/// # Errors
/// It is none.
pub(crate) fn logprob(value: &Value) -> Result<f32, CallError> {
    value.as_f64().map(|logprob| logprob as f32).ok_or_else(|| contradiction("logprob"))
}

/// Returns the items of a list.
///
/// # Errors
/// It is none.
pub(crate) fn items<'a>(value: &'a Value, part: &str) -> Result<&'a [Value], CallError> {
    value.as_array().map(Vec::as_slice).ok_or_else(|| contradiction(part))
}

/// Returns a text. Empty: there is none.
pub(crate) fn text(value: &Value) -> String {
    value.as_str().unwrap_or_default().to_owned()
}

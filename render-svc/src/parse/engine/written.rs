//! Calls that were read in a text.

use std::ops::Range;

use super::fault::ContentError;
use super::value::{Dict, Value};

/// The most calls of an answer. Each takes much more memory than its text.
pub(in super::super) const MAX_CALLS: usize = 1024;

/// The field of calls.
pub(in super::super) const CALLS: &str = "tool_calls";

/// The calls of a text.
#[derive(Debug, Default)]
pub(super) struct Written {
    pub(super) calls: Vec<Value>,
    /// The parts of the text that are no calls.
    pub(super) unread: Vec<Unread>,
}

impl Written {
    /// Returns true if a text has more calls, or other parts, than an answer may have.
    pub(super) fn is_full(&self) -> bool {
        self.calls.len().max(self.unread.len()) > MAX_CALLS
    }
}

/// A part of a text of calls that is no call.
#[derive(Debug)]
pub(super) struct Unread {
    /// Its place in the text from the start of the opening on.
    pub(super) range: Range<usize>,
    /// The fault of the call. None for other words.
    pub(super) error: Option<ContentError>,
}

/// Returns a call. Without an identifier, its `id` is empty.
pub(super) fn made(name: String, arguments: Value, id: Option<Value>) -> Value {
    let id = id.unwrap_or_else(|| Value::Text(String::new()));
    let entries = [("name", Value::Text(name)), ("arguments", arguments), ("id", id)];
    entries.map(|(key, value)| (key.to_owned(), value)).into_iter().collect::<Dict>().into()
}

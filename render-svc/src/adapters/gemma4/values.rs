//! JSON values in Gemma's notation: strings are quoted with a token, other values are written as
//! Jinja prints them.

use serde_json::Value;
use tandem_template::{python, taint};

use crate::conversation::Object;

/// The quotes of strings: a separate token, which no tokenized text can imitate.
const QUOTE: &str = "<|\"|>";

/// The notation of an object's keys.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Keys {
    /// Unquoted, in calls and responses.
    Bare,
    /// Quoted, in schemas.
    Quoted,
}

/// Writes a value in Gemma's notation.
pub(super) fn write(out: &mut String, value: &Value, keys: Keys) {
    match value {
        Value::Null => out.push_str("null"),
        Value::Bool(true) => out.push_str("true"),
        Value::Bool(false) => out.push_str("false"),
        Value::Number(_) => out.push_str(&python::to_str(value)),
        Value::String(text) => write_quoted(out, text),
        Value::Array(items) => {
            out.push('[');
            write_separated(out, items, |out, item| write(out, item, keys));
            out.push(']');
        }
        Value::Object(object) => {
            out.push('{');
            write_fields(out, object, keys);
            out.push('}');
        }
    }
}

/// Writes the inside of an object.
pub(super) fn write_fields(out: &mut String, object: &Object, keys: Keys) {
    write_separated(out, sorted(object), |out, (key, value)| {
        match keys {
            Keys::Bare => out.push_str(key),
            Keys::Quoted => write_quoted(out, key),
        }
        out.push(':');
        write(out, value, keys);
    });
}

/// Writes text as a Gemma string.
pub(super) fn write_quoted(out: &mut String, text: &str) {
    out.push_str(QUOTE);
    out.push_str(text);
    out.push_str(QUOTE);
}

/// Writes items with commas between them.
pub(super) fn write_separated<T>(
    out: &mut String,
    items: impl IntoIterator<Item = T>,
    mut write: impl FnMut(&mut String, T),
) {
    for (i, item) in items.into_iter().enumerate() {
        if i > 0 {
            out.push(',');
        }
        write(out, item);
    }
}

/// Returns an object's entries as Jinja's `dictsort` orders them: by key, ignoring case, and
/// stable.
pub(super) fn sorted(object: &Object) -> Vec<(&str, &Value)> {
    let mut entries: Vec<_> = object.iter().map(|(key, value)| (key.as_str(), value)).collect();
    entries.sort_by_cached_key(|(key, _)| taint::strip(key).to_lowercase());
    entries
}

//! JSON text that may be marked: what is read from it is marked as well.

use serde_json::Value;
use tandem_template::{Marks, marks};

use crate::conversation::Object;

/// The object that the text is, if it is one.
#[must_use]
pub fn object(text: &str) -> Option<Object> {
    let object = serde_json::from_str(&marks::plain(text)).ok()?;
    Some(match marks::of(text) {
        Some(marks) => marked_object(object, marks),
        None => object,
    })
}

fn marked_object(object: Object, marks: Marks) -> Object {
    object.into_iter().map(|(key, value)| (marks.marked(&key), marked(value, marks))).collect()
}

fn marked(value: Value, marks: Marks) -> Value {
    match value {
        Value::String(text) => Value::String(marks.marked(&text)),
        Value::Array(items) => items.into_iter().map(|item| marked(item, marks)).collect(),
        Value::Object(object) => Value::Object(marked_object(object, marks)),
        other => other,
    }
}

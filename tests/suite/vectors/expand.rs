//! Files of the contract, with the texts and lists that they write in short.

use std::path::Path;

use serde::de::DeserializeOwned;
use serde_json::{Map, Value};

/// Reads a file of the contract.
pub(super) fn read<T: DeserializeOwned>(file: &Path) -> T {
    let parsed = serde_json::from_slice(&std::fs::read(file).expect("readable")).expect("JSON");
    serde_json::from_value(expanded(parsed)).unwrap_or_else(|error| panic!("{}: {error}", file.display()))
}

/// Returns JSON with the text or list that each `{"before", "repeat", "count", "after"}` means.
fn expanded(value: Value) -> Value {
    match value {
        Value::Array(items) => items.into_iter().map(expanded).collect(),
        Value::Object(found) => match found.get("repeat") {
            Some(Value::String(part)) => repeated(&found, part).into(),
            Some(Value::Array(items)) => listed(&found, items).into(),
            _ => Value::Object(found.into_iter().map(|(key, value)| (key, expanded(value))).collect()),
        },
        value => value,
    }
}

fn count(found: &Map<String, Value>) -> usize {
    found["count"].as_u64().and_then(|count| count.try_into().ok()).expect("a count")
}

fn repeated(found: &Map<String, Value>, part: &str) -> String {
    let end = |key: &str| found.get(key).and_then(Value::as_str).unwrap_or_default();
    [end("before"), &part.repeat(count(found)), end("after")].concat()
}

fn listed(found: &Map<String, Value>, items: &[Value]) -> Vec<Value> {
    let end = |key: &str| found.get(key).and_then(Value::as_array).cloned().unwrap_or_default();
    [end("before"), vec![items; count(found)].concat(), end("after")].concat()
}

//! The comparison of an answer with a vector's expectation.

use std::collections::BTreeMap;

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use serde::Deserialize;
use serde_json::{Map, Value, json};
use tandem_tests::repository;

use super::Expectation;
use super::client::Client;

/// The relative tolerance of numbers with a fraction.
const TOLERANCE: f64 = 1e-4;

/// Returns the differences of an answer, one line each.
pub(super) fn differences(
    expected: &Expectation,
    is_cancelled: bool,
    messages: Vec<Value>,
    error: Option<&Value>,
    headers: &BTreeMap<String, String>,
) -> Vec<String> {
    let mut found = Vec::new();
    let cancelled = json!({"code": "CANCELLED"});
    match (if is_cancelled { Some(&cancelled) } else { expected.error.as_ref() }, error) {
        (Some(expected), Some(error)) => differ("error", expected, Some(error), &mut found),
        (None, None) => {}
        (expected, error) => found.push(format!("status: expected {expected:?}, got {error:?}")),
    }
    for (name, value) in &expected.headers {
        let actual = headers.get(name);
        if actual != Some(value) && !(value == "*" && actual.is_some()) {
            found.push(format!("headers.{name}: expected {value}, got {actual:?}"));
        }
    }
    let mut root = Value::Null;
    if let Some(response) = &expected.response {
        root = messages.into_iter().next().unwrap_or_default();
        differ("", response, Some(&root), &mut found);
    } else if let Some(events) = &expected.events {
        root = json!({"events": joined(messages, expected.keeps_progress())});
        differ("", &json!({"events": events}), Some(&root), &mut found);
    }
    let present = expected.absent.iter().filter(|path| at(&root, path).is_some());
    found.extend(present.map(|path| format!("{path}: must be absent")));
    found
}

/// Returns the value at a path such as `events[2].finished.reason`.
fn at<'a>(value: &'a Value, path: &str) -> Option<&'a Value> {
    path.split('.').try_fold(value, |value, step| {
        let mut parts = step.split('[');
        let value = value.get(parts.next()?)?;
        parts.try_fold(value, |list, index| list.get(index.strip_suffix(']')?.parse::<usize>().ok()?))
    })
}

/// Adds the places where the actual value does not contain the expected one.
fn differ(path: &str, expected: &Value, actual: Option<&Value>, found: &mut Vec<String>) {
    match (expected, actual) {
        (expected, None) if is_default(expected) => {}
        (Value::Object(fields), None | Some(Value::Object(_))) => {
            for (key, value) in fields {
                let path = if path.is_empty() { key.clone() } else { format!("{path}.{key}") };
                differ(&path, value, actual.and_then(|actual| actual.get(key)), found);
            }
        }
        (Value::Array(items), Some(Value::Array(actual))) if items.len() == actual.len() => {
            for (i, (item, actual)) in items.iter().zip(actual).enumerate() {
                differ(&format!("{path}[{i}]"), item, Some(actual), found);
            }
        }
        (Value::Number(number), Some(Value::Number(actual))) if is_near(number, actual) => {}
        (expected, Some(actual)) if expected == actual => {}
        (expected, actual) => {
            let shown = actual.map_or_else(|| "nothing".to_owned(), Value::to_string);
            found.push(format!("{path}: expected {expected}, got {shown}"));
        }
    }
}

fn is_default(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::Bool(value) => !value,
        Value::Number(number) => number.as_f64() == Some(0.0),
        Value::String(text) => text.is_empty() || text == "0" || text.ends_with("_UNSPECIFIED"),
        Value::Array(items) => items.is_empty(),
        Value::Object(fields) => fields.is_empty() || fields.values().all(is_default),
    }
}

fn is_near(expected: &serde_json::Number, actual: &serde_json::Number) -> bool {
    let (Some(a), Some(b)) = (expected.as_f64(), actual.as_f64()) else { return false };
    let has_fraction = a.fract() != 0.0 || b.fract() != 0.0;
    a == b || (has_fraction && (a - b).abs() <= TOLERANCE * a.abs().max(1.0))
}

/// Joins the runs of deltas, per output and value of `reasoning`, and those of prompt log probabilities.
fn joined(events: Vec<Value>, keeps_progress: bool) -> Vec<Value> {
    let mut result: Vec<Value> = Vec::new();
    let mut run: Vec<Map<String, Value>> = Vec::new();
    for mut event in events {
        let is_unknown = event.as_object().is_some_and(Map::is_empty); // of a newer server
        let is_parsed = event.get("parsed").is_some(); // the last event has the whole
        if is_unknown || is_parsed || event.get("progress").is_some() && !keeps_progress {
            continue;
        }
        if let Some(Value::Object(delta)) = event.get_mut("delta") {
            join_delta(&mut run, std::mem::take(delta));
            continue;
        }
        result.extend(deltas(std::mem::take(&mut run)));
        let last = result.last_mut().and_then(|last| last.get_mut("promptLogprobs"));
        match (last, event.get_mut("promptLogprobs")) {
            (Some(Value::Object(last)), Some(Value::Object(next))) => append(last, std::mem::take(next)),
            _ => result.push(event),
        }
    }
    result.extend(deltas(run));
    result
}

/// Adds a delta that has content to a run: to the last delta of its output, or as a new one.
fn join_delta(run: &mut Vec<Map<String, Value>>, delta: Map<String, Value>) {
    if !["text", "bytes", "tokenIds", "tokens"].iter().any(|key| delta.contains_key(*key)) {
        return;
    }
    let last = run.iter_mut().rfind(|joined| joined.get("outputIndex") == delta.get("outputIndex"));
    match last {
        Some(joined) if joined.get("reasoning") == delta.get("reasoning") => append(joined, delta),
        _ => run.push(delta),
    }
}

/// Returns the joined deltas of a run, by output.
fn deltas(mut run: Vec<Map<String, Value>>) -> impl Iterator<Item = Value> {
    run.sort_by_key(|delta| delta.get("outputIndex").and_then(Value::as_u64));
    run.into_iter().map(|delta| json!({"delta": delta}))
}

/// Appends texts, bytes and lists.
fn append(joined: &mut Map<String, Value>, next: Map<String, Value>) {
    for (key, value) in next {
        match (joined.get_mut(&key), value) {
            (Some(Value::Array(items)), Value::Array(more)) => items.extend(more),
            (Some(Value::String(text)), Value::String(more)) if key == "bytes" => {
                let bytes = [&**text, &more].map(|part| BASE64_STANDARD.decode(part).expect("base64")).concat();
                *text = BASE64_STANDARD.encode(bytes);
            }
            (Some(Value::String(text)), Value::String(more)) => text.push_str(&more),
            (_, value) => {
                joined.insert(key, value);
            }
        }
    }
}

/// The cases that the suites of all languages share.
#[derive(Debug, Deserialize)]
struct Cases {
    differences: Vec<Difference>,
    present: Vec<Present>,
    joined: Vec<Joined>,
    newer: Vec<Newer>,
}

#[derive(Debug, Deserialize)]
struct Difference {
    expected: Value,
    #[serde(default)]
    actual: Value,
    at: Vec<String>,
}

#[derive(Debug, Deserialize)]
struct Present {
    paths: Vec<String>,
    actual: Value,
    at: Vec<String>,
}

#[derive(Debug, Deserialize)]
struct Joined {
    #[serde(default)]
    progress: bool,
    events: Vec<Value>,
    joined: Vec<Value>,
}

/// A message with fields and enum numbers of a later version.
#[derive(Debug, Deserialize)]
struct Newer {
    method: String,
    binary: String,
    json: Value,
}

#[test]
fn the_comparison_treats_the_shared_cases_as_the_other_languages_do() {
    let text = std::fs::read(repository().join("tests/clients/comparison.json")).expect("the cases");
    let cases: Cases = serde_json::from_slice(&text).expect("cases");
    for Difference { expected, actual, at } in cases.differences {
        let mut found = Vec::new();
        differ("", &expected, Some(&actual), &mut found);
        let paths: Vec<_> = found.iter().map(|line| line.split(':').next().unwrap_or_default()).collect();
        assert_eq!(paths, at, "{expected} {actual}");
    }
    for Present { paths, actual, at: present } in cases.present {
        let found: Vec<_> = paths.into_iter().filter(|path| at(&actual, path).is_some()).collect();
        assert_eq!(found, present, "{actual}");
    }
    for case in cases.joined {
        assert_eq!(joined(case.events, case.progress), case.joined);
    }
    for Newer { method, binary, json } in cases.newer {
        assert_eq!(Client::of_this_version().answer_of(&method, &binary), json);
    }
}

//! Each field of the answers is left out once, and changed once: a vector notices it, or
//! `tests/contract/unnoticed.json` has the reason.

use std::collections::{BTreeMap, BTreeSet};

use prost_reflect::{FieldDescriptor, Kind, MessageDescriptor};
use serde_json::{Value, json};
use tandem_tests::repository;

use super::client::{self, Client};
use super::{Vector, compare};

/// Answers above this size are those of vectors about sizes.
const MAX_BYTES: usize = 64 << 10;

/// The messages of an answer, by the name of its vector.
pub(super) type Answers = BTreeMap<String, Vec<Value>>;

#[derive(Debug, Clone, Copy)]
enum Fault {
    LeftOut,
    Changed,
}

/// Asserts that each field without a reason is noticed.
pub(super) fn assert_each_field_is_noticed(client: &Client, vectors: &[Vector], answers: &Answers) {
    let path = repository().join("tests/contract/unnoticed.json");
    let reasons: BTreeMap<String, String> =
        serde_json::from_slice(&std::fs::read(path).expect("the reasons")).expect("reasons");
    let mut left: BTreeSet<String> = client::methods().flat_map(|name| fields(&client.output(&name))).collect();
    let mut changed = left.clone();
    for vector in vectors.iter().filter(|vector| vector.expect.messages().next().is_some()) {
        let Some(messages) = answers.get(&vector.name) else { continue };
        let output = client.output(&vector.method);
        for (open, fault) in [(&mut left, Fault::LeftOut), (&mut changed, Fault::Changed)] {
            open.retain(|field| !is_noticed(vector, messages, &output, field, fault));
        }
    }
    let open: BTreeSet<String> = left.union(&changed).cloned().collect();
    let unexplained: Vec<_> = open.iter().filter(|field| !reasons.contains_key(*field)).collect();
    assert!(unexplained.is_empty(), "no vector notices {unexplained:#?}");
    let noticed: Vec<_> = reasons.keys().filter(|field| !open.contains(*field)).collect();
    assert!(noticed.is_empty(), "vectors notice {noticed:?}, which have a reason in unnoticed.json");
}

/// Returns the full names of all fields below a message.
fn fields(message: &MessageDescriptor) -> BTreeSet<String> {
    let (mut found, mut open) = (BTreeSet::new(), vec![message.clone()]);
    while let Some(message) = open.pop() {
        for field in message.fields().filter(|_| is_own(&message)) {
            if found.insert(field.full_name().to_owned()) {
                open.extend(inner(&field));
            }
        }
    }
    found
}

/// Returns the message type of a field's values.
fn inner(field: &FieldDescriptor) -> Option<MessageDescriptor> {
    match field.kind() {
        Kind::Message(entry) if field.is_map() => entry.map_entry_value_field().kind().as_message().cloned(),
        Kind::Message(message) => Some(message),
        _ => None,
    }
}

/// Returns true for the project's messages. Those of other packages have special forms in JSON.
fn is_own(message: &MessageDescriptor) -> bool {
    message.full_name().starts_with("tandem.")
}

/// Returns true if the vector's comparison fails for an answer with the fault in every value of a field.
fn is_noticed(vector: &Vector, messages: &[Value], output: &MessageDescriptor, field: &str, fault: Fault) -> bool {
    let mut faulty = messages.to_vec();
    let hits: usize = faulty.iter_mut().map(|message| spoil(message, output, field, fault)).sum();
    if hits == 0 {
        return false;
    }
    let is_cancelled = vector.cancel_after.is_some();
    let error = vector.expect.error.as_ref().cloned().or(is_cancelled.then(|| json!({"code": "CANCELLED"})));
    let headers = vector.expect.headers.clone();
    !compare::differences(&vector.expect, is_cancelled, faulty, error.as_ref(), &headers).is_empty()
}

/// Puts the fault into every value of a field. Returns their number.
fn spoil(message: &mut Value, descriptor: &MessageDescriptor, name: &str, fault: Fault) -> usize {
    let Value::Object(values) = message else { return 0 };
    let mut hits = 0;
    for field in descriptor.fields().filter(|_| is_own(descriptor)) {
        let key = field.json_name().to_owned();
        let Some(value) = values.get_mut(&key) else { continue };
        if field.full_name() == name {
            match fault {
                Fault::LeftOut => drop(values.remove(&key)),
                Fault::Changed => change(value, &field),
            }
            hits += 1;
        } else if let Some(inner) = inner(&field) {
            let each = |value: &mut Value| spoil(value, &inner, name, fault);
            hits += match value {
                Value::Array(items) => items.iter_mut().map(each).sum(),
                Value::Object(entries) if field.is_map() => entries.values_mut().map(each).sum(),
                value => each(value),
            };
        }
    }
    hits
}

/// Replaces a value by another one of its field.
fn change(value: &mut Value, field: &FieldDescriptor) {
    let other_name = |name: &str| match field.kind() {
        Kind::Enum(names) => names.values().map(|value| value.name().to_owned()).find(|other| other != name),
        _ => None,
    };
    *value = match &*value {
        Value::Array(items) => items.iter().chain(items.last()).cloned().collect(),
        Value::Bool(flag) => (!flag).into(),
        Value::Number(number) => (number.as_f64().unwrap_or_default() + 1.0).into(),
        Value::String(text) => match (other_name(text), text.parse::<u64>()) {
            (Some(other), _) => other.into(),
            (None, Ok(number)) => number.wrapping_add(1).to_string().into(),
            (None, Err(_)) if field.kind() == Kind::Bytes => "fn4=".into(),
            (None, Err(_)) => format!("{text}~").into(),
        },
        Value::Object(_) | Value::Null => Value::Null,
    };
}

/// Returns the messages of an answer to examine.
pub(super) fn kept(messages: &[Value]) -> Option<Vec<Value>> {
    let bytes: usize = messages.iter().map(|message| message.to_string().len()).sum();
    (bytes <= MAX_BYTES).then(|| messages.to_vec())
}

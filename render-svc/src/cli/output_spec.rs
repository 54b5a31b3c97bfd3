//! The output spec as JSON, with the contract's names. Values that are empty are left out.

use serde_json::{Value, json};
use tandem_common::pb::generate::v1 as pb;

use crate::conversation::Object;

/// Returns the JSON form, which `gen-svc generate` reads.
pub(super) fn json(spec: pb::OutputSpec) -> Value {
    let pb::OutputSpec { eos_token_ids, stop_strings, special_token_classes, reasoning, extraction } = spec;
    let classes: Vec<Value> = special_token_classes.iter().map(class).collect();
    filled([
        ("eos_token_ids", json!(eos_token_ids)),
        ("stop_strings", json!(stop_strings)),
        ("special_token_classes", json!(classes)),
        ("reasoning", reasoning.map_or(Value::Null, markers)),
        ("extraction", extraction.map_or(Value::Null, rules)),
    ])
}

fn class(class: &pb::SpecialTokenClass) -> Value {
    let pb::SpecialTokenClass { name, token_ids, .. } = class;
    json!({"name": name, "token_ids": token_ids, "action": class.action().as_str_name()})
}

fn markers(markers: pb::ReasoningMarkers) -> Value {
    let pb::ReasoningMarkers { start_token_ids, end_token_ids, start_strings, end_strings } = markers;
    filled([
        ("start_token_ids", json!(start_token_ids)),
        ("end_token_ids", json!(end_token_ids)),
        ("start_strings", json!(start_strings)),
        ("end_strings", json!(end_strings)),
    ])
}

fn rules(rules: pb::ExtractionRules) -> Value {
    let pb::ExtractionRules { strip_reasoning, cut_head, strip_lines } = rules;
    filled([
        ("strip_reasoning", json!(strip_reasoning)),
        ("cut_head", json!(cut_head)),
        ("strip_lines", json!(strip_lines)),
    ])
}

/// Returns an object of the values that are not empty.
fn filled<const N: usize>(values: [(&str, Value); N]) -> Value {
    let is_empty = |value: &Value| match value {
        Value::Null | Value::Bool(false) => true,
        Value::String(text) => text.is_empty(),
        Value::Array(items) => items.is_empty(),
        Value::Object(members) => members.is_empty(),
        _ => false,
    };
    let filled = values.into_iter().filter(|(_, value)| !is_empty(value));
    Value::Object(filled.map(|(key, value)| (key.to_owned(), value)).collect::<Object>())
}

//! Answers parsed and shown as transformers' ResponseParser shows them, for the goldens and for random answers.

use std::sync::Arc;

use render_svc::parse::{Event, Parser, Template, Value};
use serde_json::{Value as Json, json};

/// Returns a value in JSON that has integers and floats apart.
fn shown(value: &Value) -> Json {
    match value {
        Value::Null => Json::Null,
        Value::Bool(truth) => json!(truth),
        Value::Int(digits) => json!({"int": digits}),
        Value::Float(number) if number.is_nan() => json!({"float": "nan"}),
        Value::Float(number) => json!({"float": format!("{:016x}", number.to_bits())}),
        Value::Text(text) => json!(text),
        Value::List(items) => items.iter().map(shown).collect(),
        Value::Dict(entries) => {
            let entries: Vec<_> = entries.iter().map(|(key, value)| json!([key, shown(value)])).collect();
            json!({"entries": entries})
        }
    }
}

fn listed(events: &[Event]) -> Json {
    let event = |event: &Event| match event {
        Event::Open { field } => json!(["open", &**field]),
        Event::Chunk { field, text, is_dirty } => json!(["chunk", &**field, text, is_dirty]),
        Event::Close { field, value } => json!(["close", &**field, shown(value)]),
        Event::Note { .. } => panic!("the reference has no notes"),
    };
    events.iter().map(event).collect()
}

/// The events of an answer, with its message or the step that fails.
#[derive(Debug, Default, PartialEq)]
pub(super) struct Parsed {
    /// The events of the prompt, and of each piece.
    pub(super) events: Vec<Json>,
    pub(super) message: Option<Json>,
    /// The events of the end.
    pub(super) last: Option<Json>,
    /// `prompt`, `end`, or the index of the piece.
    pub(super) fails: Option<Json>,
}

/// Parses an answer in pieces, after a prompt.
pub(super) fn parsed(template: &Arc<Template>, prompt: &str, pieces: &[String], tools: &[Json]) -> Parsed {
    let tools: Vec<Value> = tools.iter().map(Value::from).collect();
    let mut parsed = Parsed::default();
    let Ok((mut parser, first)) = Parser::new(Arc::clone(template), prompt, &tools) else {
        return Parsed { fails: Some(json!("prompt")), ..parsed };
    };
    parsed.events.push(listed(&first));
    for (step, piece) in pieces.iter().enumerate() {
        match parser.feed(piece) {
            Ok(events) => parsed.events.push(listed(&events)),
            Err(_) => return Parsed { fails: Some(json!(step)), ..parsed },
        }
    }
    match parser.finish() {
        Ok((message, last)) => {
            Parsed { message: Some(shown(&Value::from(message))), last: Some(listed(&last)), ..parsed }
        }
        Err(_) => Parsed { fails: Some(json!("end")), ..parsed },
    }
}

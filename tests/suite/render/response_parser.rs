//! Answers of models, read as by transformers' ResponseParser (`golden/make_response_parser.py`).

use std::collections::BTreeMap;
use std::sync::Arc;

use render_svc::parse::{Event, Parser, Template, Value};
use serde::Deserialize;
use serde_json::{Value as Json, json};
use tandem_tests::repository;

#[derive(Debug, Deserialize)]
struct Goldens {
    tools: Vec<Json>,
    models: BTreeMap<String, Model>,
    rows: Vec<Row>,
}

#[derive(Debug, Deserialize)]
struct Model {
    template: Json,
    prompt: String,
}

/// An answer in pieces.
#[derive(Debug, Deserialize)]
struct Row {
    name: String,
    pieces: Vec<String>,
    /// The events of the prompt, and of each piece.
    events: Vec<Json>,
    message: Option<Json>,
    /// The events of the end.
    last: Option<Json>,
    /// `prompt`, `end`, or the index of the piece.
    fails: Option<Json>,
}

/// Returns a value as the goldens have it.
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
struct Parsed {
    events: Vec<Json>,
    message: Option<Json>,
    last: Option<Json>,
    fails: Option<Json>,
}

fn parsed(model: &Model, pieces: &[String], tools: &[Json]) -> Parsed {
    let template = Arc::new(Template::new(&Value::from(&model.template)).expect("a template"));
    let tools: Vec<Value> = tools.iter().map(Value::from).collect();
    let mut parsed = Parsed::default();
    let Ok((mut parser, first)) = Parser::new(template, &model.prompt, &tools) else {
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
            Parsed { message: Some(shown(&Value::Dict(message))), last: Some(listed(&last)), ..parsed }
        }
        Err(_) => Parsed { fails: Some(json!("end")), ..parsed },
    }
}

#[test]
fn answers_of_models_are_read_as_by_transformers() {
    let text = std::fs::read_to_string(repository().join("tests/golden/response_parser.json")).expect("the goldens");
    let goldens: Goldens = serde_json::from_str(&text).expect("goldens");
    assert!(goldens.models.len() >= 35 && goldens.rows.len() > 200);
    for (at, row) in goldens.rows.into_iter().enumerate() {
        let found = parsed(&goldens.models[&row.name], &row.pieces, &goldens.tools);
        let Row { events, message, last, fails, .. } = row;
        assert_eq!(found, Parsed { events, message, last, fails }, "row {at}, {}: {:?}", row.name, row.pieces);
    }
}

/// What cannot be searched for in linear time is refused by its name.
#[test]
fn a_template_with_a_pattern_that_is_not_linear_is_refused_by_name() {
    let patterns = [("(?=a)b", "look"), (r"(a)\1", "back-reference"), ("(?>a)b", "atomic"), ("a*+b", "possessive")];
    for (pattern, construct) in patterns {
        let template = json!({"start_anchor": "<a>", "fields": {"content": {"open_pattern": pattern}}});
        let error = Template::new(&Value::from(&template)).expect_err("it is refused").to_string();
        assert!(error.contains("content") && error.contains("open_pattern"), "{error}");
        assert!(error.contains(construct), "{pattern}: {error}");
    }
}

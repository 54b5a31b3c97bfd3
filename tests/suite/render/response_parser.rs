//! Answers of models, read as by transformers' ResponseParser (`golden/make_response_parser.py`).

mod differential;
mod parsed;

use std::collections::BTreeMap;
use std::sync::Arc;

use render_svc::parse::{Template, Value};
use serde::Deserialize;
use serde_json::{Value as Json, json};
use tandem_tests::repository;

use self::parsed::{Parsed, parsed};

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

#[test]
fn answers_of_models_are_read_as_by_transformers() {
    let text = std::fs::read_to_string(repository().join("tests/golden/response_parser.json")).expect("the goldens");
    let goldens: Goldens = serde_json::from_str(&text).expect("goldens");
    assert!(goldens.models.len() >= 35 && goldens.rows.len() > 200);
    for (at, row) in goldens.rows.into_iter().enumerate() {
        let model = &goldens.models[&row.name];
        let template = Arc::new(Template::new(&Value::from(&model.template)).expect("a template"));
        let found = parsed(&template, &model.prompt, &row.pieces, &goldens.tools);
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

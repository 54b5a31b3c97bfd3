//! The chat-template engine against live transformers, on random cases.
//!
//! `differential/generate.py` makes cases and `differential/oracle.py` adds what transformers makes of them; the result is
//! the file that `TANDEM_DIFFERENTIAL` names.

use std::fs::File;
use std::io::{BufRead, BufReader};

use serde_json::{Map, Value};
use tandem_common::template::{ChatTemplate, Input, Limits, LocalTime, RenderError};

/// Where the oracle's clock stands.
const NOW: LocalTime = LocalTime { year: 2025, month: 7, day: 4, hour: 9, minute: 5, second: 3, microsecond: 0 };
/// How many differing cases are shown.
const SHOWN: usize = 20;

/// What a case gives: the prompt, the template's own message, or any other failure.
#[derive(Debug, PartialEq, Eq)]
enum Outcome {
    Text(String),
    Raised(String),
    Failed,
}

fn expected(case: &Value) -> Outcome {
    let expected = &case["expected"];
    match (expected["text"].as_str(), expected["raised"].as_bool()) {
        (Some(text), _) => Outcome::Text(text.to_owned()),
        (None, Some(true)) => Outcome::Raised(expected["message"].as_str().unwrap_or_default().to_owned()),
        (None, _) => Outcome::Failed,
    }
}

fn rendered(case: &Value) -> Outcome {
    let none = Map::new();
    let given = |key: &str| case.get(key).filter(|value| !value.is_null());
    let object = |key: &str| given(key).and_then(Value::as_object).unwrap_or(&none);
    let flag = |key: &str| given(key).and_then(Value::as_bool).unwrap_or(false);
    let input = Input {
        messages: given("messages").and_then(Value::as_array).map_or(&[], Vec::as_slice),
        tools: given("tools"),
        documents: given("documents"),
        args: object("args"),
        special_tokens: object("special_tokens"),
        add_generation_prompt: flag("add_generation_prompt"),
        continue_final_message: flag("continue_final_message"),
        now: NOW,
    };
    let Ok(template) = ChatTemplate::compile(case["template"].as_str().unwrap_or_default()) else {
        return Outcome::Failed;
    };
    match template.apply(&input, &Limits::default()) {
        Ok(applied) => Outcome::Text(applied.text),
        Err(RenderError::Raised { message, .. }) => Outcome::Raised(message),
        Err(_) => Outcome::Failed,
    }
}

#[test]
#[ignore = "needs cases that transformers has rendered"]
fn random_cases_render_as_in_transformers() {
    let path = std::env::var("TANDEM_DIFFERENTIAL").expect("TANDEM_DIFFERENTIAL names a file of cases");
    let cases = BufReader::new(File::open(path).expect("the cases can be read")).lines();
    let mut differing = Vec::new();
    let mut count = 0;
    for line in cases {
        let case: Value = serde_json::from_str(&line.expect("a line")).expect("a case");
        count += 1;
        let (expected, rendered) = (expected(&case), rendered(&case));
        if expected != rendered {
            differing.push(format!("{}\n  expected {expected:?}\n  rendered {rendered:?}", case["template"]));
        }
    }
    differing.sort_by_key(String::len);
    let shown = differing.iter().take(SHOWN).cloned().collect::<Vec<_>>().join("\n");
    assert!(differing.is_empty(), "{} of {count} cases differ:\n{shown}", differing.len());
}

//! The chat-template engine compared with live transformers, on random cases.
//!
//! `differential/generate.py` makes cases, and `differential/oracle.py` adds transformers' results.
//! TANDEM_DIFFERENTIAL names the resulting files. `cargo xtask test --differential` runs all of
//! this.

use std::fs::File;
use std::io::{BufRead, BufReader};
use std::path::Path;

use serde_json::{Map, Value};
use tandem_template::{ChatTemplate, Input, Limits, LocalTime, RenderError};

/// The time of the oracle's clock.
const NOW: LocalTime = LocalTime { year: 2025, month: 7, day: 4, hour: 9, minute: 5, second: 3, microsecond: 0 };
/// The maximum number of differing cases that are printed.
const SHOWN: usize = 5;

/// The outcome of a case: the prompt, the template's own message, or any other failure.
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
        continue_final_message: match given("continue_final_message") {
            Some(Value::String(field)) => Some(field.as_str()),
            _ => flag("continue_final_message").then_some("content"),
        },
        now: NOW,
        taint: None,
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

/// Returns the differing cases of one file, and the number of all its cases.
fn compare(path: &Path) -> (Vec<String>, usize) {
    let cases = BufReader::new(File::open(path).expect("the cases can be read")).lines();
    let mut differing = Vec::new();
    let mut count = 0;
    for line in cases {
        let line = line.expect("a line");
        let case: Value = serde_json::from_str(&line).expect("a case");
        count += 1;
        let (expected, rendered) = (expected(&case), rendered(&case));
        if expected != rendered {
            differing.push(format!("{line}\n  expected {expected:?}\n  rendered {rendered:?}"));
        }
    }
    (differing, count)
}

#[test]
#[ignore = "needs cases that transformers has rendered"]
fn random_cases_render_as_in_transformers() {
    let paths = std::env::var_os("TANDEM_DIFFERENTIAL").expect("TANDEM_DIFFERENTIAL names files of cases");
    let mut all = Vec::new();
    for path in std::env::split_paths(&paths) {
        let (differing, count) = compare(&path);
        eprintln!("{}: {count} cases, {} differ", path.display(), differing.len());
        all.extend(differing);
    }
    all.sort_by_key(String::len);
    let shown = all.iter().take(SHOWN).cloned().collect::<Vec<_>>().join("\n");
    assert!(all.is_empty(), "{} cases differ, of which the shortest:\n{shown}", all.len());
}

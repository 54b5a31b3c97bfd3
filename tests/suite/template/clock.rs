//! `strftime_now`, compared with Python. `tests/golden/make_strftime.py` makes the texts.

use std::fs;

use serde_json::{Map, json};
use tandem_template::{ChatTemplate, Input, Limits, LocalTime};
use tandem_tests::repository;

fn formatted(template: &ChatTemplate, now: LocalTime, format: &str) -> Option<String> {
    let args: Map<_, _> = [("format".to_owned(), json!(format))].into_iter().collect();
    let input = Input {
        messages: &[json!({"role": "user", "content": "Hi"})],
        tools: None,
        documents: None,
        args: &args,
        special_tokens: &Map::new(),
        add_generation_prompt: false,
        continue_final_message: None,
        now,
        taint: None,
    };
    template.apply(&input, &Limits::default()).ok().map(|applied| applied.text)
}

#[test]
fn strftime_writes_what_python_writes() {
    let template = ChatTemplate::compile("{{ strftime_now(format) }}").expect("a template");
    let golden = fs::read_to_string(repository().join("tests/golden/strftime.json")).expect("the golden file");
    let rows: Vec<[String; 3]> = serde_json::from_str(&golden).expect("rows");
    for [time, format, expected] in rows {
        let now = LocalTime::parse(&time).expect("a time");
        assert_eq!(formatted(&template, now, &format).as_deref(), Some(&*expected), "{time} {format:?}");
    }
}

/// CPython would give a hundred megabytes here.
#[test]
fn a_format_with_wide_directives_is_limited() {
    let template = ChatTemplate::compile("{{ strftime_now(format) }}").expect("a template");
    let format = "%1500d".repeat(100_000);
    assert_eq!(formatted(&template, LocalTime::EPOCH, &format), None);
}

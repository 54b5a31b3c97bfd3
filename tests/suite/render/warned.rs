//! Requests whose warnings are compared.

use serde_json::{Value, json};
use tandem_tests::{ModelFolder, answer};

/// Shows every message as a line with its role.
pub(super) const ALL: &str = "{% for m in messages %}<{{ m.role }}>{{ m.content }}{% endfor %}";

/// Returns a message.
pub(super) fn say(role: &str, content: impl Into<Value>) -> Value {
    json!({"role": role, "content": content.into()})
}

/// Returns an object with a further field.
pub(super) fn with(mut object: Value, key: &str, value: impl Into<Value>) -> Value {
    object[key] = value.into();
    object
}

/// Returns the answer of a model with this template.
pub(super) fn rendered(template: &str, request: &Value) -> Value {
    answer(&ModelFolder::new("tiny").with_template(template).models(), request)
}

/// Checks the codes and paths of the warnings of a model with this template.
#[track_caller]
pub(super) fn check(template: &str, request: &Value, expected: &[(&str, &str)]) {
    let answer = rendered(template, request);
    let warnings = answer["warnings"].as_array().unwrap_or_else(|| panic!("{template}: {answer}")).iter();
    let found: Vec<_> =
        warnings.map(|warning| ["code", "path"].map(|key| warning[key].as_str().expect("a text"))).collect();
    let expected: Vec<_> = expected.iter().map(|(code, path)| [*code, *path]).collect();
    assert_eq!(found, expected, "{template}: {answer}");
}

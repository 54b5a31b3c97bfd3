//! The texts by which a part is found in a prompt.

use std::slice;

use serde_json::Value;

/// The texts of a part.
#[derive(Debug)]
pub(super) enum Texts<'c> {
    One(&'c str),
    Many(Vec<&'c str>),
}

impl<'c> Texts<'c> {
    pub(super) fn all(&self) -> &[&'c str] {
        match self {
            Self::One(text) => slice::from_ref(text),
            Self::Many(texts) => texts,
        }
    }

    pub(super) fn has_words(&self) -> bool {
        self.all().iter().any(|text| !text.trim().is_empty())
    }
}

/// Texts of at least this size are rarely in a prompt by chance.
pub(super) const MIN_BYTES: usize = 8;

/// Returns the first words of a text that templates write as they are, also within JSON and XML. The
/// whole text if they are short.
pub(super) fn plain_words(text: &str) -> &str {
    text.split(is_escaped).find(|words| words.trim().len() >= MIN_BYTES).unwrap_or(text)
}

/// Returns the last words of a text that templates write as they are. A template that cuts the text leaves
/// them out.
pub(super) fn last_plain_words(text: &str) -> &str {
    text.rsplit(is_escaped).find(|words| words.trim().len() >= MIN_BYTES).unwrap_or(text)
}

/// Returns the start of a text that templates write as it is, unless it is short.
pub(super) fn long_start(text: &Value) -> Option<&str> {
    text.as_str().map(plain_start).filter(|start| start.trim().len() >= MIN_BYTES)
}

/// Returns the start of a text that templates write as it is, also within JSON and XML.
fn plain_start(text: &str) -> &str {
    &text[..text.find(is_escaped).unwrap_or(text.len())]
}

fn is_escaped(c: char) -> bool {
    c.is_control() || matches!(c, '"' | '\'' | '\\' | '<' | '>' | '&')
}

/// Returns words of each text in arguments.
pub(super) fn words_of(value: &Value) -> Vec<&str> {
    leaves(value).into_iter().map(last_plain_words).filter(|text| !text.trim().is_empty()).collect()
}

/// Returns the numbers in an argument, as the request spells them.
pub(super) fn numbers(value: &Value) -> Vec<&str> {
    match value {
        Value::Number(number) => vec![number.as_str()],
        Value::Array(items) => items.iter().flat_map(numbers).collect(),
        Value::Object(fields) => fields.values().flat_map(numbers).collect(),
        _ => Vec::new(),
    }
}

/// Returns the texts in a value.
pub(super) fn leaves(value: &Value) -> Vec<&str> {
    match value {
        Value::String(text) => vec![text],
        Value::Array(items) => items.iter().flat_map(leaves).collect(),
        Value::Object(fields) => fields.values().flat_map(leaves).collect(),
        _ => Vec::new(),
    }
}

//! The special tokens of an answer, and lists of tools.

use serde_json::Value as Json;
use tandem_model_files::tokenizer::Tokenizer;

use super::engine::Value;
use super::rules::Rules;
use super::schema::{Budget, plain_tool};

/// Returns true if the text of a token is part of what rules read.
pub(crate) fn is_read(tokenizer: &Tokenizer, rules: &Rules, id: u32) -> bool {
    !tokenizer.is_special(id) || special_text(tokenizer, id).is_some_and(|text| rules.reads_token(&text))
}

pub(crate) fn special_text(tokenizer: &Tokenizer, id: u32) -> Option<String> {
    tokenizer.token_bytes(id).map(|bytes| String::from_utf8_lossy(bytes).into_owned())
}

/// Returns a JSON list of tools as rules read it. A model's own rules see what transformers shows them.
pub(crate) fn tools(rules: &Rules, list: Option<&Json>) -> Vec<Value> {
    if rules.head.is_none() {
        return values(list);
    }
    let Some(list) = list else { return Vec::new() };
    let mut budget = Budget::of(list);
    let tools = list.as_array().into_iter().flatten();
    tools.map(|tool| Value::from(&plain_tool(tool, &mut budget))).collect()
}

/// Returns the items of a JSON list.
pub(crate) fn values(list: Option<&Json>) -> Vec<Value> {
    list.and_then(Json::as_array).into_iter().flatten().map(Value::from).collect()
}

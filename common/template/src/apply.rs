//! The work of transformers' `apply_chat_template` around a template.

use std::borrow::Cow;
use std::ops::Range;

use minijinja::Value;
use serde_json::{Map, Value as Json};

use crate::clock::{self, LocalTime};
use crate::error::{Fallible, RenderError};
use crate::limits::Limits;
use crate::program::Program;
use crate::python::{number, text};
use crate::taint::{self, Taint};
use crate::value::{Dict, Namespaces, Seq, SeqKind, none};
use crate::{budget, machine};

/// Marks the end of the final message during the render.
const CONTINUE_TAG: &str = "CONTINUE_FINAL_MESSAGE_TAG ";
/// The names of the reasoning field; templates read the first.
const REASONING: [&str; 3] = ["reasoning_content", "thinking", "reasoning"];
/// The arguments that the conversation sets itself.
const RESERVED: [&str; 4] = ["messages", "tools", "documents", "add_generation_prompt"];

/// A conversation and how to render it.
#[derive(Debug, Clone, Copy)]
pub struct Input<'a> {
    /// The messages, each a JSON object.
    pub messages: &'a [Json],
    /// A list of JSON objects. Without tools, templates see `none`.
    pub tools: Option<&'a Json>,
    /// A list of JSON objects. Without documents, templates see `none`.
    pub documents: Option<&'a Json>,
    /// Arguments for the template, which override special tokens of the same name.
    pub args: &'a Map<String, Json>,
    /// Special tokens of the model, such as `bos_token` and `eos_token`.
    pub special_tokens: &'a Map<String, Json>,
    /// True if the prompt ends with the start of the assistant's answer.
    pub add_generation_prompt: bool,
    /// The field of the final message within which the prompt ends, so that the model continues it:
    /// usually `content`. A name of reasoning means every field with the same reasoning.
    pub continue_final_message: Option<&'a str>,
    /// The time that `strftime_now` returns.
    pub now: LocalTime,
    /// The taint of text from the conversation, which the template does not see.
    pub taint: Option<Taint>,
}

/// A rendered conversation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Applied {
    /// The prompt.
    pub text: String,
    /// The byte ranges of `text` from `{% generation %}` blocks, in the order in which the blocks
    /// ended.
    pub generation_spans: Vec<Range<usize>>,
    /// The names of the variables that the template looked up, such as `tools`. Those in a branch that
    /// was not taken are none.
    pub read: Vec<String>,
}

pub(super) fn apply(
    program: &Program,
    source: &str,
    input: &Input<'_>,
    limits: &Limits,
) -> Result<Applied, RenderError> {
    check(input)?;
    let _scope = taint::TaintScope::start(input.taint);
    let mut messages = prepare(input.messages)?;
    let continued = input.continue_final_message.map(|field| mark_final(&mut messages, field, source)).transpose()?;
    let mut applied = run(program, &messages, input, limits)?;
    if let Some(final_text) = continued {
        cut_at_mark(&mut applied, &final_text)?;
    }
    Ok(applied)
}

fn refuse<T>(message: impl Into<String>) -> Result<T, RenderError> {
    Err(RenderError::Input { message: message.into() })
}

fn check(input: &Input<'_>) -> Result<(), RenderError> {
    if input.messages.is_empty() {
        return refuse("the conversation is empty");
    }
    if input.continue_final_message.is_some() && input.add_generation_prompt {
        return cannot_continue("it is not compatible with add_generation_prompt");
    }
    let objects = |value: Option<&Json>| value.is_none_or(list_of_objects);
    if !objects(input.tools) {
        return refuse("tools must be a list of JSON objects");
    }
    if !objects(input.documents) {
        return refuse("documents must be a list of JSON objects");
    }
    match input.args.keys().find(|name| RESERVED.contains(&name.as_str())) {
        Some(name) => refuse(format!("the template argument '{name}' is set by the conversation")),
        None => Ok(()),
    }
}

fn list_of_objects(value: &Json) -> bool {
    value.as_array().is_some_and(|items| items.iter().all(Json::is_object)) || value.is_null()
}

/// The messages; only the final one is ever changed.
type Messages<'a> = Vec<Cow<'a, Map<String, Json>>>;

fn prepare(messages: &[Json]) -> Result<Messages<'_>, RenderError> {
    let mut prepared = Vec::with_capacity(messages.len());
    for (at, message) in messages.iter().enumerate() {
        match message.as_object() {
            Some(message) => prepared.push(Cow::Borrowed(message)),
            None => return refuse(format!("message {at} is not a JSON object")),
        }
    }
    Ok(prepared)
}

/// Returns a message without null keys. Reasoning under any of its names is copied to the name that
/// templates read; `thinking` is put first if it is new.
fn message_value(message: &Map<String, Json>) -> Fallible<Value> {
    let given = || message.iter().filter(|(_, value)| !value.is_null());
    let reasoning = REASONING.iter().find_map(|name| lookup(message, name).filter(|value| !value.is_null()));
    let Some(reasoning) = reasoning else {
        return entries_value(given());
    };
    let canonical = (REASONING[0], reasoning);
    let has = |name: &str| message.get(name).is_some_and(|value| !value.is_null());
    let thinking = message.get("thinking").filter(|value| !value.is_null()).unwrap_or(reasoning);
    let rest = given()
        .filter(|(key, _)| *key != "thinking")
        .map(|(key, value)| if key == canonical.0 { canonical } else { (key.as_str(), value) });
    let appended = (!has(canonical.0)).then_some(canonical);
    entries_value([("thinking", thinking)].into_iter().chain(rest).chain(appended))
}

fn cannot_continue<T>(message: impl Into<String>) -> Result<T, RenderError> {
    Err(RenderError::ContinueFinalMessage { message: message.into() })
}

/// Marks the end of the final message's text in `field`, and returns the text.
fn mark_final(messages: &mut Messages<'_>, field: &str, source: &str) -> Result<String, RenderError> {
    let missing = || cannot_continue(format!("the final message has no {field} to continue"));
    let Some(message) = messages.last_mut().map(Cow::to_mut) else { return missing() };
    let (fields, mut value) = continued_fields(message, field);
    if value.is_null() {
        return missing();
    }
    if !fields.iter().any(|field| source.contains(&*taint::strip(field))) {
        return cannot_continue(format!("the template does not use the {field} of messages"));
    }
    let text = match &mut value {
        Json::String(text) => mark(text),
        Json::Array(blocks) => mark_last_block(blocks)?,
        _ => return cannot_continue(format!("the {field} of the final message is neither text nor a list of blocks")),
    };
    for field in fields {
        if message.get(&field).is_some_and(Json::is_null) {
            message.shift_remove(&field); // a null field is none, so the field is new and comes last
        }
        message.insert(field, value.clone());
    }
    Ok(text)
}

/// Returns the keys of the fields to continue, and their value: null if there is none. Reasoning has
/// several names, of which a template reads any. Every name of the same text is continued, and
/// every name of the same list.
fn continued_fields(message: &Map<String, Json>, field: &str) -> (Vec<String>, Json) {
    let given = |name: &str| lookup(message, name).filter(|value| !value.is_null());
    let first = REASONING.into_iter().find(|name| given(name).is_some());
    let Some(first) = first.filter(|_| REASONING.contains(&field)) else {
        let key = message.keys().find(|key| taint::strip(key) == field);
        let value = key.map_or(Json::Null, |key| message[key].clone());
        return (key.cloned().into_iter().collect(), value);
    };
    // The name in the request that a name has its value from, as in `message_value`.
    let origin = |name: &str| match name {
        "reasoning_content" => Some(first),
        "thinking" if given(name).is_none() => Some(first),
        _ => REASONING.into_iter().find(|known| *known == name && given(known).is_some()),
    };
    let value_of = |name: &str| origin(name).and_then(given);
    let Some(value) = value_of(field) else { return (Vec::new(), Json::Null) };
    let is_same = |name: &&str| match value {
        Json::String(_) => value_of(name) == Some(value),
        _ => origin(name) == origin(field),
    };
    (REASONING.into_iter().filter(is_same).map(str::to_owned).collect(), value.clone())
}

fn mark(text: &mut String) -> String {
    let original = text.clone();
    text.push_str(CONTINUE_TAG);
    original
}

fn mark_last_block(blocks: &mut [Json]) -> Result<String, RenderError> {
    for block in blocks.iter_mut().rev() {
        match block {
            Json::Object(block) => match block.get_mut("text") {
                Some(Json::String(text)) => return Ok(mark(text)),
                Some(_) => return cannot_continue("the last text block of the final message has no text"),
                None => {}
            },
            Json::String(text) if text.contains("text") => {
                return cannot_continue("a block of the final message is not a JSON object");
            }
            Json::String(_) | Json::Array(_) => {}
            _ => return cannot_continue("a block of the final message is not a JSON object"),
        }
    }
    cannot_continue("the final message has no text to continue")
}

/// Cuts the prompt at the end of the final message.
fn cut_at_mark(applied: &mut Applied, final_text: &str) -> Result<(), RenderError> {
    let trimmed_tag = CONTINUE_TAG.trim_end();
    let stripped = text::strip(final_text, None, true, true);
    let found = applied.text.rfind(trimmed_tag).filter(|_| applied.text.contains(stripped));
    let Some(at) = found else {
        return cannot_continue("the final message does not appear in the prompt");
    };
    let whole = applied.text[at..].starts_with(CONTINUE_TAG);
    applied.text.truncate(at);
    if !whole {
        // The template trims its messages, so the space before the mark is the template's too.
        let kept = text::strip(&applied.text, None, false, true).len();
        applied.text.truncate(kept);
    }
    let len = applied.text.len();
    applied.generation_spans.iter_mut().for_each(|span| {
        span.start = span.start.min(len);
        span.end = span.end.min(len);
    });
    Ok(())
}

fn run(program: &Program, messages: &Messages<'_>, input: &Input<'_>, limits: &Limits) -> Fallible<Applied> {
    let _meter = budget::Meter::start(limits);
    let _namespaces = Namespaces::start();
    clock::set(input.now);
    let machine::Run { text, generation_spans, read } = machine::run(program, |name| context(name, messages, input))?;
    Ok(Applied { text, generation_spans, read })
}

/// Returns the value of a name that the template uses, if the conversation has an argument or a
/// special token of this name.
fn context(name: &str, messages: &Messages<'_>, input: &Input<'_>) -> Fallible<Option<Value>> {
    let given = |value: Option<&Json>| value.map_or_else(|| Ok(none()), to_value);
    Ok(Some(match name {
        "messages" => {
            let messages = messages.iter().map(|message| message_value(message)).collect::<Fallible<Vec<_>>>()?;
            Seq::free_of_charge(SeqKind::List, messages)?
        }
        "tools" => given(input.tools)?,
        "documents" => given(input.documents)?,
        "add_generation_prompt" => Value::from(input.add_generation_prompt),
        _ => match lookup(input.args, name).or_else(|| lookup(input.special_tokens, name)) {
            Some(value) => to_value(value)?,
            None => return Ok(None),
        },
    }))
}

/// Up to this size, a linear search is faster than hashing.
const MAX_SEARCHED_ENTRIES: usize = 12;

fn lookup<'a>(map: &'a Map<String, Json>, name: &str) -> Option<&'a Json> {
    if map.len() > MAX_SEARCHED_ENTRIES {
        return map.get(name);
    }
    map.iter().find(|(key, _)| *key == name).map(|(_, value)| value)
}

/// Converts a JSON value. Input is not charged; it extends the budget.
fn to_value(json: &Json) -> Fallible<Value> {
    match json {
        Json::Null => Ok(none()),
        Json::Bool(flag) => Ok(Value::from(*flag)),
        Json::Number(number) => number::from_json(number.as_str()),
        Json::String(text) => {
            budget::grant(text.len());
            Ok(Value::from(text.as_str()))
        }
        Json::Array(items) => {
            budget::grant(items.len());
            Seq::free_of_charge(SeqKind::List, items.iter().map(to_value).collect::<Fallible<_>>()?)
        }
        Json::Object(map) => entries_value(map),
    }
}

fn entries_value<'a, K: AsRef<str>>(entries: impl IntoIterator<Item = (K, &'a Json)>) -> Fallible<Value> {
    let entries = entries.into_iter().map(|(key, value)| {
        budget::grant(key.as_ref().len());
        Ok((Value::from(key.as_ref()), to_value(value)?))
    });
    Dict::of_distinct(entries.collect::<Fallible<_>>()?, 0)
}

//! Parsers of calls that the reference has none for: lists of calls in JSON or in Python's syntax.
//!
//! Both give a list of objects with `name`, `arguments` and `id`, which is empty if the text has none.

use std::ops::Range;

use super::fault::ContentError;
use super::pattern::{Pattern, find_all};
use super::python;
use super::python_calls;
use super::value::{Dict, Keys, Value};
use super::written::{MAX_CALLS, Unread, Written, made};

/// How calls are written.
#[derive(Debug)]
pub(super) enum Form {
    /// JSON objects with a name and arguments, in a list or one after another. Strict: each has arguments, and no other
    /// text is between them.
    Json { is_strict: bool },
    /// A name, as a pattern shows it, and an object of arguments, one after another.
    NamedJson(Pattern),
    /// `name(key=value, …)`, in a list or one after another.
    Python,
}

const NAMES: [&str; 2] = ["name", "tool_name"];
const ARGUMENTS: [&str; 2] = ["arguments", "parameters"];
const IDS: [&str; 2] = ["id", "tool_call_id"];

impl Form {
    /// Returns the calls of a text. `opening` and `closing` are the texts of the anchors around it: a bracket in them
    /// belongs to the calls.
    pub(super) fn parse(&self, opening: &str, text: &str, closing: &str) -> Result<Written, ContentError> {
        let bracket = match self {
            Self::Json { .. } if opening.ends_with('[') => opening.rfind('['),
            Self::Json { .. } => opening.find('{'),
            Self::NamedJson(_) => Some(0),
            Self::Python => opening.find('['),
        };
        let start = bracket.unwrap_or(opening.len());
        let (mark, before) = opening.split_at(start);
        let after = closing.rfind([']', '}', ')']).and_then(|at| closing.get(..=at)).unwrap_or_default();
        let text = [before, text, after].concat();
        let is_json = || text.trim_start_matches(|c| python::is_space(c) || c == '[').starts_with('{');
        let mut written = match self {
            Self::Json { is_strict } => json_calls(&text, python::strip(mark), *is_strict)?,
            Self::NamedJson(name) => named_calls(&text, name)?,
            Self::Python if is_json() => json_calls(&text, python::strip(mark), false)?,
            Self::Python => python_calls::calls(&text)?,
        };
        if written.is_full() {
            return Err(ContentError::TooMany(MAX_CALLS));
        }
        for unread in &mut written.unread {
            unread.range = unread.range.start + start..unread.range.end + start;
        }
        if written.calls.is_empty() { Err(ContentError::NotA("a call")) } else { Ok(written) }
    }
}

/// Returns the calls of JSON values, which white space, commas, semicolons or marks separate. After the first call,
/// other words up to the next mark remain unread.
fn json_calls(text: &str, mark: &str, is_strict: bool) -> Result<Written, ContentError> {
    let (mut written, mut at) = (Written::default(), 0);
    loop {
        let from = at;
        let rest = text.get(from..).unwrap_or_default();
        let rest = rest.trim_start_matches(|c| python::is_space(c) || matches!(c, ',' | ';'));
        at = text.len() - rest.len();
        if rest.is_empty() || written.is_full() {
            return Ok(written);
        }
        match json_value(rest).and_then(|(value, after)| Ok((calls_of(value, is_strict)?, after))) {
            Ok((calls, after)) => {
                written.calls.extend(calls);
                at = text.len() - after.len();
            }
            Err(error) if is_strict || mark.is_empty() || written.calls.is_empty() => return Err(error),
            Err(_) if is_marked_call(rest, mark, is_strict) => at += mark.len(),
            Err(error) => {
                let after = after_mark(rest, mark).unwrap_or(rest);
                let is_value = after.starts_with(['{', '[']);
                let value = if is_value { json_end(after).unwrap_or(after.len()) } else { 0 };
                let words = after.get(value..).unwrap_or_default();
                let end = text.len() - words.len() + words.find(mark).unwrap_or(words.len());
                written.unread.push(Unread { range: from..end, error: is_value.then_some(error) });
                at = end;
            }
        }
    }
}

/// Returns true if a text begins with the mark of a call, and the call follows.
fn is_marked_call(text: &str, mark: &str, is_strict: bool) -> bool {
    let value = after_mark(text, mark).map(json_value);
    value.is_some_and(|value| value.and_then(|(value, _)| calls_of(value, is_strict)).is_ok())
}

/// Returns the text after the mark at its start, and after white space.
fn after_mark<'t>(text: &'t str, mark: &str) -> Option<&'t str> {
    text.strip_prefix(mark).map(|after| after.trim_start_matches(python::is_space))
}

/// Returns the calls of a JSON value: a call, or a list of calls.
fn calls_of(value: Value, is_strict: bool) -> Result<Vec<Value>, ContentError> {
    match value {
        Value::List(items) => items.into_iter().map(|item| call(item, is_strict)).collect(),
        value => Ok(vec![call(value, is_strict)?]),
    }
}

/// Returns the object or list at the start of a text, and the text after it.
fn json_value(text: &str) -> Result<(Value, &str), ContentError> {
    let (value, after) = text.split_at(json_end(text).ok_or(ContentError::NotA("JSON"))?);
    Ok((Value::loads(value, Keys::Distinct)?, after))
}

/// Returns the end of the object or list at the start of a text.
fn json_end(text: &str) -> Option<usize> {
    let (mut depth, mut in_string, mut escaped) = (0_usize, false, false);
    for (at, byte) in text.bytes().enumerate() {
        match byte {
            _ if escaped => escaped = false,
            b'\\' if in_string => escaped = true,
            b'"' => in_string = !in_string,
            _ if in_string => {}
            b'{' | b'[' => depth += 1,
            b'}' | b']' => {
                depth = depth.checked_sub(1)?;
                if depth == 0 {
                    return Some(at + 1);
                }
            }
            _ => {}
        }
        if depth == 0 {
            return None;
        }
    }
    None
}

/// Returns a call of an object that has a name and arguments. An object with one key is a name with arguments. Strict:
/// the arguments are there.
fn call(value: Value, is_strict: bool) -> Result<Value, ContentError> {
    let Value::Dict(mut entries) = value else { return Err(ContentError::NotA("an object")) };
    let is_name = |key: &String| ![NAMES, ARGUMENTS, IDS].iter().flatten().any(|known| key == known);
    if entries.len() == 1 && entries.keys().all(is_name) {
        let only = entries.pop().filter(|(_, arguments)| matches!(arguments, Value::Dict(_)));
        let (name, arguments) = only.ok_or(ContentError::NotA("a call"))?;
        return Ok(made(name, arguments, None));
    }
    let mut take = |keys: [&str; 2]| keys.iter().find_map(|key| entries.shift_remove(*key));
    let parts = (take(NAMES), take(ARGUMENTS), take(IDS));
    if entries.get("type").and_then(Value::as_text) == Some("function") {
        entries.shift_remove("type");
    }
    match parts {
        // No call has further keys, which would be lost.
        _ if !entries.is_empty() => Err(ContentError::NotA("a call")),
        (Some(Value::Text(name)), Some(arguments), id) => Ok(made(name, arguments, id)),
        (Some(Value::Text(name)), None, id) if !is_strict => Ok(made(name, Dict::new().into(), id)),
        _ => Err(ContentError::NotA("a call")),
    }
}

/// Returns the calls of names with arguments. After the first call, other words up to the next name remain unread.
fn named_calls(text: &str, name: &Pattern) -> Result<Written, ContentError> {
    let index = |wanted: &str| name.names().iter().position(|known| known == wanted);
    let (name_index, id_index) = (index("name"), index("id"));
    let (mut written, mut end) = (Written::default(), 0);
    for found in find_all(name, text) {
        // A name within the arguments of the call before is text.
        if found.start < end {
            continue;
        }
        written.add_words(text, end..found.start)?;
        if written.is_full() {
            return Ok(written);
        }
        let group = |index: usize| found.group(index).and_then(|(start, end)| text.get(start..end));
        let called = name_index.and_then(group).ok_or(ContentError::NotA("a call"))?;
        let rest = text.get(found.end..).unwrap_or_default();
        match json_value(rest.trim_start_matches(python::is_space)) {
            Ok((arguments, after)) => {
                end = text.len() - after.len();
                let id = id_index.and_then(group).filter(|id| !id.is_empty()).map(|id| Value::Text(id.to_owned()));
                written.calls.push(made(called.to_owned(), arguments, id));
            }
            Err(error) if written.calls.is_empty() => return Err(error),
            Err(error) => {
                written.unread.push(Unread { range: found.start..text.len(), error: Some(error) });
                return Ok(written);
            }
        }
    }
    written.add_words(text, end..text.len())?;
    Ok(written)
}

impl Written {
    /// Adds words that are no call, unless they are white space. Fails if no call is before them.
    fn add_words(&mut self, text: &str, range: Range<usize>) -> Result<(), ContentError> {
        let words = text.get(range.clone()).unwrap_or_default();
        if python::strip(words).is_empty() {
            return Ok(());
        }
        if self.calls.is_empty() {
            return Err(ContentError::NotA("a call"));
        }
        self.unread.push(Unread { range, error: None });
        Ok(())
    }
}

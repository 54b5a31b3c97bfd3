//! Parsers of calls that the reference has none for: lists of calls in JSON or in Python's syntax.
//!
//! Both give a list of objects with `name`, `arguments` and `id`, which is empty if the text has none.

use super::fault::ContentError;
use super::pattern::{Pattern, find_all};
use super::python;
use super::python_calls;
use super::value::{Dict, Value};

/// How calls are written.
#[derive(Debug)]
pub(super) enum Form {
    /// JSON objects with a name and arguments, in a list or one after another.
    Json,
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
    pub(super) fn parse(&self, opening: &str, text: &str, closing: &str) -> Result<Value, ContentError> {
        let before = match self {
            Self::Json => opening.find('{').and_then(|at| opening.get(at..)).unwrap_or_default(),
            Self::NamedJson(_) => python::strip(opening),
            Self::Python => opening.find('[').and_then(|at| opening.get(at..)).unwrap_or_default(),
        };
        let after = closing.rfind([']', '}', ')']).and_then(|at| closing.get(..=at)).unwrap_or_default();
        let text = [before, text, after].concat();
        let calls = match self {
            Self::Json => json_calls(&text)?,
            Self::NamedJson(name) => named_calls(&text, name)?,
            Self::Python => {
                let calls = python_calls::calls(&text)?.into_iter();
                calls.map(|(name, arguments)| made(name, Value::Dict(arguments), None)).collect()
            }
        };
        if calls.is_empty() { Err(ContentError::NotA("a call")) } else { Ok(Value::List(calls)) }
    }
}

fn json_calls(text: &str) -> Result<Vec<Value>, ContentError> {
    let mut calls = Vec::new();
    for value in json_values(text)? {
        match value {
            Value::List(items) => {
                for item in items {
                    calls.push(call(item)?);
                }
            }
            value => calls.push(call(value)?),
        }
    }
    Ok(calls)
}

/// Returns the JSON values of a text, which white space, commas or semicolons separate.
fn json_values(text: &str) -> Result<Vec<Value>, ContentError> {
    let (mut values, mut rest) = (Vec::new(), text);
    loop {
        rest = rest.trim_start_matches(|c| python::is_space(c) || matches!(c, ',' | ';'));
        if rest.is_empty() {
            return Ok(values);
        }
        let (value, after) = json_value(rest)?;
        values.push(value);
        rest = after;
    }
}

/// Returns the object or list at the start of a text, and the text after it.
fn json_value(text: &str) -> Result<(Value, &str), ContentError> {
    let (value, after) = text.split_at(json_end(text).ok_or(ContentError::NotA("JSON"))?);
    Ok((Value::loads(value).map_err(ContentError::Json)?, after))
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

/// Returns a call of an object that has a name and arguments. An object with one key is a name with arguments.
fn call(value: Value) -> Result<Value, ContentError> {
    let Value::Dict(mut entries) = value else { return Err(ContentError::NotA("an object")) };
    if !NAMES.iter().any(|key| entries.contains_key(*key)) && entries.len() == 1 {
        let only = entries.pop().filter(|(_, arguments)| matches!(arguments, Value::Dict(_)));
        let (name, arguments) = only.ok_or(ContentError::NotA("a call"))?;
        return Ok(made(name, arguments, None));
    }
    let mut take = |keys: [&str; 2]| keys.iter().find_map(|key| entries.shift_remove(*key));
    match (take(NAMES), take(ARGUMENTS), take(IDS)) {
        (Some(Value::Text(name)), Some(arguments), id) => Ok(made(name, arguments, id)),
        (Some(Value::Text(name)), None, id) => Ok(made(name, Value::Dict(Dict::new()), id)),
        _ => Err(ContentError::NotA("a call")),
    }
}

fn named_calls(text: &str, name: &Pattern) -> Result<Vec<Value>, ContentError> {
    let index = |wanted: &str| name.names().iter().position(|known| known == wanted);
    let (name_index, id_index) = (index("name"), index("id"));
    let (mut calls, mut end) = (Vec::new(), 0);
    for found in find_all(name, text) {
        // A name within the arguments of the call before is text.
        if found.start < end {
            continue;
        }
        if !python::strip(text.get(end..found.start).unwrap_or_default()).is_empty() {
            return Err(ContentError::NotA("a call"));
        }
        let group = |index: usize| found.group(index).and_then(|(start, end)| text.get(start..end));
        let called = name_index.and_then(group).ok_or(ContentError::NotA("a call"))?;
        let rest = text.get(found.end..).unwrap_or_default();
        let start = rest.trim_start_matches(python::is_space);
        let (arguments, after) = json_value(start)?;
        end = text.len() - after.len();
        let id = id_index.and_then(group).filter(|id| !id.is_empty()).map(|id| Value::Text(id.to_owned()));
        calls.push(made(called.to_owned(), arguments, id));
    }
    if python::strip(text.get(end..).unwrap_or_default()).is_empty() {
        Ok(calls)
    } else {
        Err(ContentError::NotA("a call"))
    }
}

/// Returns a call. Without an identifier, its `id` is empty.
fn made(name: String, arguments: Value, id: Option<Value>) -> Value {
    let id = id.unwrap_or_else(|| Value::Text(String::new()));
    let entries = [("name", Value::Text(name)), ("arguments", arguments), ("id", id)];
    Value::Dict(entries.map(|(key, value)| (key.to_owned(), value)).into_iter().collect())
}

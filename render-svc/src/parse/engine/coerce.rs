//! Casts the arguments of tool calls by the schemas of the tools.

mod deep;

use std::collections::{HashMap, HashSet};

use tandem_template::python::LoadsError;

use super::arena::{Arena, Id, Node};
use super::fault::ContentError;
use super::python;
use super::python_calls;
use super::value::{Dict, Keys, Value};

/// Why an argument cannot be cast.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum CoerceError {
    #[error("the schema's `{0}` is neither a list nor null")]
    Schema(&'static str),
    #[error("argument `{key}`: {source}")]
    Json { key: String, source: Box<ContentError> },
}

/// The schemas of the parameters of each tool.
#[derive(Debug, Default)]
pub(super) struct Tools {
    schemas: HashMap<String, Dict>,
    /// True if objects and lists may be Python's literals, which the reference leaves as texts, and if large numbers
    /// keep all digits, which the reference rounds.
    reads_python: bool,
}

impl Tools {
    /// Reads tools in the form of `apply_chat_template`. Other values are ignored.
    pub(super) fn new(tools: &[Value], reads_python: bool) -> Self {
        let mut schemas = HashMap::new();
        for tool in tools.iter().filter_map(Value::as_dict) {
            let function = tool.get("function").map_or(Some(tool), Value::as_dict);
            let Some(function) = function else { continue };
            let Some(Value::Text(name)) = function.get("name") else { continue };
            let parameters = function.get("parameters").and_then(Value::as_dict);
            schemas.insert(name.clone(), parameters.cloned().unwrap_or_default());
        }
        Self { schemas, reads_python }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.schemas.is_empty()
    }

    /// Casts the arguments of a call, or of each call of a list.
    pub(super) fn coerce(&self, arena: &mut Arena, id: Id) -> Result<(), CoerceError> {
        let function = match arena.open(id) {
            Node::List(items) => {
                return items.clone().into_iter().try_for_each(|item| self.coerce(arena, item));
            }
            Node::Dict(entries) => entries.get("function").copied(),
            Node::Whole(_) => None,
        };
        let Some(Node::Dict(function)) = function.map(|function| arena.open(function)) else { return Ok(()) };
        let (Some(&name), Some(&dict)) = (function.get("name"), function.get("arguments")) else { return Ok(()) };
        let schema = arena.text(name).and_then(|name| self.schemas.get(name));
        let properties = schema.and_then(|schema| schema.get("properties")?.as_dict());
        let Some(properties) = properties else { return Ok(()) };
        let Node::Dict(arguments) = arena.open(dict) else { return Ok(()) };
        for (key, argument) in arguments.clone() {
            let types = properties.get(&key).map_or(Ok(Vec::new()), types)?;
            if !types.is_empty() {
                let json = |source| CoerceError::Json { key: key.clone(), source: Box::new(source) };
                if let Some(value) = cast(arena, argument, &types, self.reads_python).map_err(json)? {
                    arena.set(dict, &key, value);
                }
            }
        }
        Ok(())
    }
}

/// Returns the cast argument, or None if it stays as it is.
fn cast(arena: &mut Arena, argument: Id, types: &[&str], reads_python: bool) -> Result<Option<Id>, ContentError> {
    if let Some(text) = arena.text(argument) {
        let value = cast_leaf(text, types, reads_python)?;
        return Ok(Some(arena.insert(value)));
    }
    if types.contains(&"array") {
        return Ok(None);
    }
    match arena.open(argument) {
        Node::List(items) => {
            let mut cast = items.clone();
            for item in &mut cast {
                if let Some(text) = arena.text(*item) {
                    let value = cast_text(text, types, reads_python)?;
                    *item = arena.insert(value);
                }
            }
            Ok(Some(arena.push(Node::List(cast))))
        }
        _ => Ok(None),
    }
}

/// Returns the text as a value of the first type that fits, also in Python's syntax, or as it is.
fn cast_leaf(text: &str, types: &[&str], reads_python: bool) -> Result<Value, ContentError> {
    match cast_text(text, types, reads_python)? {
        Value::Text(text) if reads_python => Ok(literal(&text, types).unwrap_or(Value::Text(text))),
        value => Ok(value),
    }
}

/// Returns the object or list that a text is in Python's syntax, if a schema allows it.
fn literal(text: &str, types: &[&str]) -> Option<Value> {
    if !types.contains(&"object") && !types.contains(&"array") {
        return None;
    }
    match python_calls::literal(text)? {
        value @ Value::Dict(_) if types.contains(&"object") => Some(value),
        value @ Value::List(_) if types.contains(&"array") => Some(value),
        _ => None,
    }
}

/// Returns the types that a schema allows, in its order.
fn types(schema: &Value) -> Result<Vec<&str>, CoerceError> {
    let Value::Dict(schema) = schema else { return Ok(Vec::new()) };
    let mut types = match schema.get("type") {
        Some(Value::Text(name)) => vec![name.as_str()],
        Some(Value::List(names)) => names.iter().filter_map(Value::as_text).collect(),
        _ => Vec::new(),
    };
    for union in ["anyOf", "oneOf"] {
        match schema.get(union).filter(|choices| choices.is_true()) {
            Some(Value::List(choices)) => {
                for choice in choices {
                    types.extend(self::types(choice)?);
                }
            }
            None | Some(Value::Text(_) | Value::Dict(_)) => {}
            Some(_) => return Err(CoerceError::Schema(union)),
        }
    }
    if schema.get("nullable").is_some_and(Value::is_true) {
        types.push("null");
    }
    let mut known = HashSet::new();
    types.retain(|name| known.insert(*name));
    Ok(types)
}

/// Returns the text as a value of the first type that fits, or as it is.
fn cast_text(text: &str, types: &[&str], is_exact: bool) -> Result<Value, ContentError> {
    for name in types {
        if let Some(value) = cast_to(text, name, is_exact)? {
            return Ok(value);
        }
    }
    Ok(Value::Text(text.to_owned()))
}

fn cast_to(text: &str, name: &str, is_exact: bool) -> Result<Option<Value>, ContentError> {
    let stripped = python::strip(text);
    Ok(match name {
        "integer" => {
            let digits =
                || text.split_once('.').filter(|(_, rest)| is_exact && rest.trim_end().bytes().all(|b| b == b'0'));
            let exact = || digits().and_then(|(digits, _)| python::int(digits));
            let whole = || python::float(text).and_then(python::int_of_float);
            python::int(text).or_else(exact).or_else(whole).map(Value::Int)
        }
        "number" => python::float(text).filter(|number| number.is_finite()).map(|number| {
            let digits = python::int(text).filter(|_| is_exact);
            let whole = digits.or_else(|| python::int_of_float(number).filter(|_| !text.contains('.')));
            whole.map_or(Value::Float(number), Value::Int)
        }),
        "boolean" => match stripped.to_ascii_lowercase().as_str() {
            "true" | "1" => Some(Value::Bool(true)),
            "false" | "0" => Some(Value::Bool(false)),
            _ => None,
        },
        "null" => matches!(stripped, "null" | "None").then_some(Value::Null),
        "object" | "array" => match Value::loads(text, if is_exact { Keys::Distinct } else { Keys::LastWins }) {
            Ok(value @ Value::Dict(_)) if name == "object" => Some(value),
            Ok(value @ Value::List(_)) if name == "array" => Some(value),
            Ok(_) | Err(ContentError::Json(LoadsError::NotJson | LoadsError::LongInteger)) => None,
            Err(other) => return Err(other),
        },
        _ => None,
    })
}

//! Casts values within values, all of which the model wrote as texts.

use std::collections::HashSet;

use super::super::elements::ITEM;
use super::super::fault::ContentError;
use super::super::python;
use super::super::value::{Dict, Keys, Value};
use super::{CoerceError, Tools, cast_leaf};

/// The most references that are followed one after another, and the most combinations within combinations.
const MAX_DEPTH: usize = 8;
/// The most schemas of a combination, and the most types or values that one lists. The types of further ones are ignored:
/// each value of an answer looks at them again.
const MAX_CHOICES: usize = 32;

impl Tools {
    /// Casts the arguments of a call, and the values within them.
    pub(in super::super) fn coerce_deeply(&self, call: &mut Value) -> Result<(), CoerceError> {
        let Value::Dict(call) = call else { return Ok(()) };
        let Some(Value::Dict(function)) = call.get_mut("function") else { return Ok(()) };
        let Some(schema) = function.get("name").and_then(Value::as_text).and_then(|name| self.schemas.get(name)) else {
            return Ok(());
        };
        let Some(Value::Dict(arguments)) = function.get_mut("arguments") else { return Ok(()) };
        for (key, argument) in arguments.iter_mut() {
            if let Some(property) = property(schema, key) {
                let whole = std::mem::replace(argument, Value::Null);
                let json = |source| CoerceError::Json { key: key.clone(), source: Box::new(source) };
                *argument = Root(schema).cast(whole, property).map_err(json)?;
            }
        }
        Ok(())
    }
}

/// The schema of a tool's parameters, to which references within it refer.
struct Root<'s>(&'s Dict);

impl<'s> Root<'s> {
    /// Casts a value whose scalars are texts. A schema that is no object allows any value.
    fn cast(&self, value: Value, schema: &'s Value) -> Result<Value, ContentError> {
        let mut choices = Vec::new();
        self.add_choices(schema, 0, &mut choices);
        let types = types(&choices);
        match value {
            Value::Text(text) => cast_text(&text, &types),
            Value::List(items) if types.contains(&"object") && !types.contains(&"array") => {
                // An object whose only key is that of a list's items.
                let mut entries = Dict::new();
                for item in items {
                    Keys::Distinct.insert(&mut entries, ITEM.to_owned(), item)?;
                }
                self.cast_entries(entries, &choices)
            }
            Value::List(items) => match choices.iter().find_map(|choice| choice.get("items")) {
                Some(schema) => {
                    let items: Result<_, _> = items.into_iter().map(|item| self.cast(item, schema)).collect();
                    items.map(Value::List)
                }
                None => Ok(Value::List(items)),
            },
            Value::Dict(entries) => self.cast_entries(*entries, &choices),
            scalar => Ok(scalar),
        }
    }

    /// Casts the values of an object. The first schema that has all of its keys has precedence.
    fn cast_entries(&self, mut entries: Dict, choices: &[&'s Dict]) -> Result<Value, ContentError> {
        let has_all = |choice: &&&Dict| entries.keys().all(|key| property(choice, key).is_some());
        let whole: Vec<&Dict> = choices.iter().find(has_all).into_iter().copied().collect();
        for (key, value) in entries.iter_mut() {
            let own = whole.iter().chain(choices).find_map(|choice| property(choice, key));
            let further = || choices.iter().find_map(|choice| choice.get("additionalProperties"));
            if let Some(schema) = own.or_else(further) {
                *value = self.cast(std::mem::replace(value, Value::Null), schema)?;
            }
        }
        Ok(entries.into())
    }

    /// Adds the target of a reference or a schema itself, and the schemas that it combines.
    fn add_choices(&self, schema: &'s Value, depth: usize, choices: &mut Vec<&'s Dict>) {
        let Some(schema) = schema.as_dict().filter(|_| depth < MAX_DEPTH && choices.len() < MAX_CHOICES) else {
            return;
        };
        choices.push(schema);
        if let Some(target) = schema.get("$ref").and_then(Value::as_text).and_then(|path| self.target(path)) {
            self.add_choices(target, depth + 1, choices);
        }
        for union in ["anyOf", "oneOf", "allOf"] {
            if let Some(Value::List(schemas)) = schema.get(union) {
                schemas.iter().take(MAX_CHOICES).for_each(|schema| self.add_choices(schema, depth + 1, choices));
            }
        }
    }

    /// Returns the target of a reference within the schema.
    fn target(&self, path: &str) -> Option<&'s Value> {
        let mut keys = path.strip_prefix("#/")?.split('/').map(|key| key.replace("~1", "/").replace("~0", "~"));
        let first = self.0.get(&keys.next()?)?;
        keys.try_fold(first, |schema, key| match schema {
            Value::Dict(entries) => entries.get(&key),
            Value::List(items) => items.get(key.parse::<usize>().ok()?),
            _ => None,
        })
    }
}

/// Returns the types that schemas allow, in their order.
fn types<'s>(choices: &[&'s Dict]) -> Vec<&'s str> {
    let mut types: Vec<&'s str> = Vec::new();
    for &choice in choices {
        match choice.get("type") {
            Some(Value::Text(name)) => types.push(name),
            Some(Value::List(names)) => types.extend(names.iter().take(MAX_CHOICES).filter_map(Value::as_text)),
            _ => {
                if let Some(Value::List(values)) = choice.get("enum") {
                    types.extend(values.iter().take(MAX_CHOICES).filter_map(|value| type_of(value)));
                }
                types.extend(choice.get("const").and_then(|value| type_of(value)));
            }
        }
        if choice.get("nullable").is_some_and(Value::is_true) {
            types.push("null");
        }
    }
    let mut known = HashSet::new();
    types.retain(|name| known.insert(*name));
    types
}

/// Returns the name of a scalar's type in JSON schemas.
fn type_of(value: &Value) -> Option<&'static str> {
    match value {
        Value::Null => Some("null"),
        Value::Bool(_) => Some("boolean"),
        Value::Int(_) => Some("integer"),
        Value::Float(_) => Some("number"),
        Value::Text(_) => Some("string"),
        Value::List(_) | Value::Dict(_) => None,
    }
}

/// Returns a text as a value of the first type that fits. Nothing is written for an empty list or object, and for null.
fn cast_text(text: &str, types: &[&str]) -> Result<Value, ContentError> {
    if python::strip(text).is_empty() && (text.is_empty() || !types.contains(&"string")) {
        let empty = types.iter().find_map(|name| match *name {
            "string" => Some(Value::Text(text.to_owned())),
            "object" => Some(Dict::new().into()),
            "array" => Some(Value::List(Vec::new())),
            "null" => Some(Value::Null),
            _ => None,
        });
        return Ok(empty.unwrap_or_else(|| Value::Text(text.to_owned())));
    }
    cast_leaf(text, types, true)
}

/// Returns the schema of a property.
fn property<'s>(schema: &'s Dict, key: &str) -> Option<&'s Value> {
    schema.get("properties")?.as_dict()?.get(key)
}

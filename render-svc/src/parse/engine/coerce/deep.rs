//! Casts values within values, all of which the model wrote as texts.

use super::super::elements::ITEM;
use super::super::fault::ContentError;
use super::super::value::{Dict, Keys, Value};
use super::{CoerceError, Tools, cast_leaf, types};

/// The most references that are followed one after another.
const MAX_REFERENCES: usize = 8;

impl Tools {
    /// Casts the arguments of a call, and the values within them.
    pub(in super::super) fn coerce_deeply(&self, call: &mut Value) -> Result<(), CoerceError> {
        let Value::Dict(call) = call else { return Ok(()) };
        let Some(Value::Dict(function)) = call.get_mut("function") else { return Ok(()) };
        let Some(schema) = function.get("name").and_then(Value::as_text).and_then(|name| self.schemas.get(name)) else {
            return Ok(());
        };
        let Some(Value::Dict(arguments)) = function.get_mut("arguments") else { return Ok(()) };
        let root = Root(schema);
        for (key, argument) in arguments.iter_mut() {
            if let Some(schema) = property(schema, key) {
                let whole = std::mem::replace(argument, Value::Null);
                let json = |source| CoerceError::Json { key: key.clone(), source: Box::new(source) };
                *argument = root.cast(whole, schema).map_err(json)?;
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
        let schema = self.followed(schema);
        let types = types(schema).unwrap_or_default();
        match value {
            Value::Text(text) if text.is_empty() && types.contains(&"object") => Ok(Dict::new().into()),
            Value::Text(text) if text.is_empty() && types.contains(&"array") => Ok(Value::List(Vec::new())),
            Value::Text(text) => cast_leaf(text, &types, true),
            Value::List(items) if types.contains(&"object") && !types.contains(&"array") => {
                // An object whose only key is that of a list's items.
                let mut entries = Dict::new();
                for item in items {
                    Keys::Distinct.insert(&mut entries, ITEM.to_owned(), item)?;
                }
                self.cast(entries.into(), schema)
            }
            Value::List(items) => {
                let Some(schema) = self.choice(schema, "items").and_then(|choice| choice.get("items")) else {
                    return Ok(Value::List(items));
                };
                let items: Result<_, _> = items.into_iter().map(|item| self.cast(item, schema)).collect();
                items.map(Value::List)
            }
            Value::Dict(mut entries) => {
                let object = self.choice(schema, "properties").or_else(|| self.choice(schema, "additionalProperties"));
                for (key, value) in entries.iter_mut() {
                    let further = || object.and_then(|object| object.get("additionalProperties"));
                    if let Some(schema) = object.and_then(|object| property(object, key)).or_else(further) {
                        *value = self.cast(std::mem::replace(value, Value::Null), schema)?;
                    }
                }
                Ok(Value::Dict(entries))
            }
            scalar => Ok(scalar),
        }
    }

    /// Returns the target of a reference, or the schema itself.
    fn followed(&self, mut schema: &'s Value) -> &'s Value {
        for _ in 0..MAX_REFERENCES {
            let path = schema.as_dict().and_then(|schema| schema.get("$ref")?.as_text()?.strip_prefix("#/"));
            let Some(path) = path else { break };
            let mut keys = path.split('/');
            let first = keys.next().and_then(|key| self.0.get(key));
            let Some(target) = keys.try_fold(first, |schema, key| Some(schema?.as_dict()?.get(key))).flatten() else {
                break;
            };
            schema = target;
        }
        schema
    }

    /// Returns the schema, or the first of its choices, that has a key.
    fn choice(&self, schema: &'s Value, key: &str) -> Option<&'s Dict> {
        let schema = schema.as_dict()?;
        if schema.contains_key(key) {
            return Some(schema);
        }
        let choices = ["anyOf", "oneOf", "allOf"].into_iter().filter_map(|union| match schema.get(union)? {
            Value::List(choices) => Some(choices),
            _ => None,
        });
        let mut choices = choices.flatten().filter_map(|choice| self.followed(choice).as_dict());
        choices.find(|choice| choice.contains_key(key))
    }
}

/// Returns the schema of a property.
fn property<'s>(schema: &'s Dict, key: &str) -> Option<&'s Value> {
    schema.get("properties")?.as_dict()?.get(key)
}

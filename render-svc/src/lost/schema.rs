//! The parts of a tool.

use serde_json::Value;
use tandem_common::field::Step;

use super::steps;
use super::texts::{Texts, plain_words};
use crate::conversation::Object;

/// The key of the schemas of an object's fields.
pub(super) const PROPERTIES: &str = "properties";
/// Keys of a schema whose values decide how a template writes it. No mark replaces them.
const KINDS: [&str; 5] = ["type", "required", "$ref", "$schema", "$id"];
/// Keys of a function that are no part within it.
const OF_FUNCTION: [&str; 3] = ["type", "name", "description"];

/// Returns the parts of a tool's function that a prompt should show, each with the way to it: the first name
/// of an object's properties, and all other texts and numbers.
pub(super) fn parts(function: &Value) -> Vec<(Vec<Step<&str>>, Texts<'_>)> {
    let mut schema = Schema { steps: Vec::new(), parts: Vec::new() };
    let keys = function.as_object().into_iter().flatten().filter(|(key, _)| !OF_FUNCTION.contains(&key.as_str()));
    for (key, value) in keys {
        schema.walk_at(Step::Key(key), value);
    }
    schema.parts
}

/// The parts of a JSON Schema, each with the way to it.
struct Schema<'c> {
    /// The way to the current schema.
    steps: Vec<Step<&'c str>>,
    parts: Vec<(Vec<Step<&'c str>>, Texts<'c>)>,
}

impl<'c> Schema<'c> {
    /// Adds the parts of a schema, those of an object before those of its properties.
    fn walk(&mut self, schema: &'c Value) {
        for (key, value) in schema.as_object().into_iter().flatten() {
            self.steps.push(Step::Key(key));
            match (&**key, value) {
                ("enum", Value::Array(values)) => {
                    let texts: Vec<_> = values.iter().filter_map(Value::as_str).collect();
                    self.add(Some(texts).filter(|texts| !texts.is_empty()).map(Texts::Many));
                }
                (PROPERTIES, Value::Object(properties)) => {
                    // Templates show a name before its description.
                    self.add(properties.keys().next().map(|name| Texts::One(name)));
                    self.each_key(properties);
                }
                ("$defs" | "definitions", Value::Object(schemas)) => self.each_key(schemas),
                ("anyOf" | "oneOf" | "allOf" | "prefixItems" | "items", Value::Array(schemas)) => {
                    for (index, schema) in schemas.iter().enumerate() {
                        self.walk_at(Step::Index(index), schema);
                    }
                }
                ("items" | "additionalProperties" | "not", Value::Object(_)) => self.walk(value),
                (key, _) if KINDS.contains(&key) => {}
                _ => self.add_values(value),
            }
            self.steps.pop();
        }
    }

    fn each_key(&mut self, schemas: &'c Object) {
        for (key, schema) in schemas {
            self.walk_at(Step::Key(key), schema);
        }
    }

    fn walk_at(&mut self, step: Step<&'c str>, schema: &'c Value) {
        self.steps.push(step);
        self.walk(schema);
        self.steps.pop();
    }

    /// Adds a part at the current place.
    fn add(&mut self, texts: Option<Texts<'c>>) {
        self.parts.extend(texts.map(|texts| (self.steps.clone(), texts)));
    }

    /// Adds the texts and numbers in a value, such as a description or a default.
    fn add_values(&mut self, value: &'c Value) {
        let mut values = Vec::new();
        steps::values(value, &mut self.steps, &mut values);
        for (steps, value) in values {
            let text = match value {
                Value::String(text) => Some(plain_words(text)).filter(|text| !text.trim().is_empty()),
                Value::Number(number) => Some(number.as_str()),
                _ => None,
            };
            self.parts.extend(text.map(|text| (steps, Texts::One(text))));
        }
    }
}

//! The parts of a tool's schema.

use serde_json::Value;

use super::texts::{Texts, plain_words};
use crate::conversation::Object;

/// A step from a value to one within it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Step<'c> {
    Key(&'c str),
    Index(usize),
}

/// The key of a tool's schema.
const PARAMETERS: &str = "parameters";
/// The key of the schemas of an object's fields.
pub(super) const PROPERTIES: &str = "properties";

/// Returns the parts of a tool's schema that a prompt should show, each with the way to it from the tool's
/// function: the first name of the parameters, names without a description in objects within, and
/// descriptions and lists of values at any depth.
pub(super) fn parts(tool: &Value) -> Vec<(Vec<Step<'_>>, Texts<'_>)> {
    let mut schema = Schema { steps: vec![Step::Key(PARAMETERS)], parts: Vec::new() };
    tool.get(PARAMETERS).into_iter().for_each(|parameters| schema.walk(parameters));
    schema.parts
}

/// The parts of a JSON Schema, each with the way to it.
struct Schema<'c> {
    /// The way to the current schema.
    steps: Vec<Step<'c>>,
    parts: Vec<(Vec<Step<'c>>, Texts<'c>)>,
}

/// Returns the words of a description, unless it is empty.
fn description(value: &Value) -> Option<&str> {
    value.as_str().map(plain_words).filter(|text| !text.trim().is_empty())
}

impl<'c> Schema<'c> {
    /// Adds the parts of a schema, those of an object before those of its properties.
    fn walk(&mut self, schema: &'c Value) {
        for (key, value) in schema.as_object().into_iter().flatten() {
            self.steps.push(Step::Key(key));
            match (&**key, value) {
                ("description", _) => self.add(description(value).map(Texts::One)),
                ("enum", Value::Array(values)) => {
                    let texts: Vec<_> = values.iter().filter_map(Value::as_str).collect();
                    self.add(Some(texts).filter(|texts| !texts.is_empty()).map(Texts::Many));
                }
                (PROPERTIES, Value::Object(properties)) => {
                    // Templates show a name before its description.
                    let is_top = self.steps.len() == 2;
                    let is_described =
                        |schema: &Value| schema.get("description").is_some_and(|text| description(text).is_some());
                    let names = properties.keys().next().filter(|_| is_top || !properties.values().any(is_described));
                    self.add(names.map(|name| Texts::One(name)));
                    self.each_key(properties);
                }
                ("$defs" | "definitions", Value::Object(schemas)) => self.each_key(schemas),
                ("anyOf" | "oneOf" | "allOf" | "prefixItems" | "items", Value::Array(schemas)) => {
                    for (index, schema) in schemas.iter().enumerate() {
                        self.walk_at(Step::Index(index), schema);
                    }
                }
                ("items" | "additionalProperties", Value::Object(_)) => self.walk(value),
                _ => {}
            }
            self.steps.pop();
        }
    }

    fn each_key(&mut self, schemas: &'c Object) {
        for (key, schema) in schemas {
            self.walk_at(Step::Key(key), schema);
        }
    }

    fn walk_at(&mut self, step: Step<'c>, schema: &'c Value) {
        self.steps.push(step);
        self.walk(schema);
        self.steps.pop();
    }

    /// Adds a part at the current place.
    fn add(&mut self, texts: Option<Texts<'c>>) {
        self.parts.extend(texts.map(|texts| (self.steps.clone(), texts)));
    }
}

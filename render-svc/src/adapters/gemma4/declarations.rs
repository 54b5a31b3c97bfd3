//! Tools as Gemma 4 declares them in the system turn.

use serde_json::Value;
use tandem_common::field::Path;
use tandem_template::python::{is_true, to_str};
use tandem_template::taint;

use super::values::{self, Keys, write_quoted, write_separated};
use crate::conversation::{Invalid, Object};

/// Keys that describe a schema. They are omitted if the other keys of a schema without `properties`
/// are read as its properties.
const SCHEMA_KEYS: [&str; 5] = ["description", "type", "properties", "required", "nullable"];

/// Writes every tool.
pub(super) fn write(out: &mut String, tools: &[Value]) -> Result<(), Invalid> {
    for (i, tool) in tools.iter().enumerate() {
        out.push_str("<|tool>");
        write_declaration(out, tool).map_err(|e| e.within(Path::item("tools", i)))?;
        out.push_str("<tool|>");
    }
    Ok(())
}

fn write_declaration(out: &mut String, tool: &Value) -> Result<(), Invalid> {
    match tool.get("function") {
        Some(Value::Object(function)) => write_function(out, function).map_err(|e| e.within("function")),
        None if tool.get("name").is_some() => tool.as_object().map_or(Ok(()), |tool| write_function(out, tool)),
        _ => Err(Invalid::new("function", "must be an object")),
    }
}

fn write_function(out: &mut String, function: &Object) -> Result<(), Invalid> {
    let name = function.get("name").and_then(Value::as_str).filter(|name| !name.is_empty());
    let name = name.ok_or_else(|| Invalid::new("name", "must be a string that is not empty"))?;
    out.push_str("declaration:");
    out.push_str(name);
    out.push_str("{description:");
    write_quoted(out, &printed(function.get("description")));
    match given(function, "parameters") {
        None => {}
        Some(Value::Object(parameters)) => {
            write_parameters(out, parameters).map_err(|e| e.within("parameters"))?;
        }
        Some(_) => return Err(Invalid::new("parameters", "must be an object: a JSON Schema")),
    }
    if let Some(response) = function.get("response") {
        write_response(out, response);
    }
    out.push('}');
    Ok(())
}

/// Writes the parameters. Without a type the brace stays open, as in the official template.
fn write_parameters(out: &mut String, parameters: &Object) -> Result<(), Invalid> {
    out.push_str(",parameters:{");
    if let Some(properties) = given(parameters, "properties") {
        let Value::Object(properties) = properties else {
            return Err(Invalid::new("properties", "must be an object"));
        };
        out.push_str("properties:{");
        write_properties(out, properties, Filter::Nothing).map_err(|e| e.within("properties"))?;
        out.push_str("},");
    }
    if let Some(required) = given(parameters, "required") {
        write_required(out, required)?;
        out.push(',');
    }
    if let Some(kind) = given(parameters, "type") {
        write_type(out, &upper(&to_str(kind)));
        out.push('}');
    }
    Ok(())
}

fn write_response(out: &mut String, response: &Value) {
    out.push_str(",response:{");
    if let Some(description) = response.get("description").filter(|description| is_true(description)) {
        out.push_str("description:");
        write_quoted(out, &to_str(description));
        out.push(',');
    }
    if taint::strip(&upper_type(response)) == "OBJECT" {
        write_type(out, "OBJECT");
        out.push('}');
    }
}

/// The omitted entries.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Filter {
    Nothing,
    SchemaKeys,
}

fn write_properties(out: &mut String, properties: &Object, filter: Filter) -> Result<(), Invalid> {
    let is_shown = |key: &str| filter == Filter::Nothing || !SCHEMA_KEYS.contains(&key);
    let shown = values::sorted(properties).into_iter().filter(|(key, _)| is_shown(key));
    try_write_separated(out, shown, |out, (name, schema)| {
        out.push_str(name);
        out.push_str(":{");
        write_schema(out, schema).map_err(|e| e.within(Path::default().key((*name).to_owned())))?;
        out.push('}');
        Ok(())
    })
}

/// Writes the inside of one property. Every part but the type ends with a comma.
fn write_schema(out: &mut String, schema: &Value) -> Result<(), Invalid> {
    let kind = upper_type(schema);
    if let Some(description) = schema.get("description").filter(|description| is_true(description)) {
        out.push_str("description:");
        write_quoted(out, &to_str(description));
        out.push(',');
    }
    match &*taint::strip(&kind) {
        "STRING" => write_enum(out, schema),
        "ARRAY" => write_items(out, schema)?,
        _ => {}
    }
    if schema.get("nullable").is_some_and(is_true) {
        out.push_str("nullable:true,");
    }
    if let ("OBJECT", Value::Object(schema)) = (&*taint::strip(&kind), schema) {
        write_members(out, schema)?;
    }
    write_type(out, &kind);
    Ok(())
}

fn write_enum(out: &mut String, schema: &Value) {
    if let Some(choices) = schema.get("enum").filter(|choices| is_true(choices)) {
        out.push_str("enum:");
        values::write(out, choices, Keys::Quoted);
        out.push(',');
    }
}

fn write_items(out: &mut String, schema: &Value) -> Result<(), Invalid> {
    let Some(items) = schema.get("items").and_then(Value::as_object).filter(|items| !items.is_empty()) else {
        return Ok(());
    };
    out.push_str("items:{");
    let given = values::sorted(items).into_iter().filter(|(_, value)| !value.is_null());
    try_write_separated(out, given, |out, (key, value)| write_item(out, key, value).map_err(|e| e.within("items")))?;
    out.push_str("},");
    Ok(())
}

fn write_item(out: &mut String, key: &str, value: &Value) -> Result<(), Invalid> {
    match (key, value) {
        ("properties", _) => {
            out.push_str("properties:{");
            if let Value::Object(properties) = value {
                write_properties(out, properties, Filter::Nothing).map_err(|e| e.within("properties"))?;
            }
            out.push('}');
        }
        ("required", _) => write_required(out, value)?,
        ("type", Value::String(kind)) => write_type(out, &upper(kind)),
        ("type", Value::Array(kinds)) => {
            let kinds: Vec<Value> = kinds.iter().map(|kind| upper(&to_str(kind)).into()).collect();
            out.push_str("type:");
            values::write(out, &kinds.into(), Keys::Quoted);
        }
        ("type", _) => return Err(Invalid::new("type", "must be a string or a list")),
        _ => {
            out.push_str(key);
            out.push(':');
            values::write(out, value, Keys::Quoted);
        }
    }
    Ok(())
}

/// Writes the properties of an object. Without `properties`, every other key is a property.
fn write_members(out: &mut String, schema: &Object) -> Result<(), Invalid> {
    out.push_str("properties:{");
    match schema.get("properties") {
        Some(Value::Object(properties)) => {
            write_properties(out, properties, Filter::Nothing).map_err(|e| e.within("properties"))?;
        }
        _ => write_properties(out, schema, Filter::SchemaKeys)?,
    }
    out.push_str("},");
    if let Some(required) = given(schema, "required") {
        write_required(out, required)?;
        out.push(',');
    }
    Ok(())
}

fn write_required(out: &mut String, required: &Value) -> Result<(), Invalid> {
    let Value::Array(names) = required else {
        return Err(Invalid::new("required", "must be a list of names"));
    };
    out.push_str("required:[");
    write_separated(out, names, |out, name| write_quoted(out, &to_str(name)));
    out.push(']');
    Ok(())
}

fn write_type(out: &mut String, kind: &str) {
    out.push_str("type:");
    write_quoted(out, kind);
}

/// Writes items with commas between them, up to the first error.
fn try_write_separated<T>(
    out: &mut String,
    items: impl IntoIterator<Item = T>,
    mut write: impl FnMut(&mut String, T) -> Result<(), Invalid>,
) -> Result<(), Invalid> {
    let mut result = Ok(());
    write_separated(out, items, |out, item| {
        if result.is_ok() {
            result = write(out, item);
        }
    });
    result
}

/// Returns a schema's type in capitals; an empty text without one.
fn upper_type(schema: &Value) -> String {
    upper(&printed(schema.get("type")))
}

fn upper(text: &str) -> String {
    taint::rewrite(text, str::to_uppercase)
}

/// Returns the text that Jinja prints for an optional value.
fn printed(value: Option<&Value>) -> String {
    value.map(to_str).unwrap_or_default()
}

/// Returns a key's value if it is true in Python.
fn given<'a>(object: &'a Object, key: &str) -> Option<&'a Value> {
    object.get(key).filter(|value| is_true(value))
}

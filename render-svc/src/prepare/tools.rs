//! Tool declarations in every common shape, rewritten to the shape of templates and encoders:
//! `{"type": "function", "function": {"name", "description", "parameters"}}`.

use serde_json::{Value, json};
use tandem_common::field::Path;

use super::place::Place;
use crate::conversation::{Object, function};
use crate::warning::{Warning, WarningCode};

const PARAMETERS: &str = "parameters";

/// Names of the parameters in other APIs: Anthropic's, and the Model Context Protocol's.
const SCHEMAS: [&str; 2] = ["input_schema", "inputSchema"];

/// Rewrites tools with another name for their parameters. All others stay as they are.
///
/// Returns the place of each tool in the request.
pub fn rewrite(tools: &mut Value) -> Vec<Place> {
    let tools = tools.as_array_mut().into_iter().flatten().enumerate();
    tools.map(|(i, tool)| rewrite_tool(tool, Path::item("tools", i))).collect()
}

/// Warns of each schema that a tool has in addition to its parameters, which is never read.
pub fn warnings(tools: &Value) -> impl Iterator<Item = Warning> {
    let tools = tools.as_array().into_iter().flatten().enumerate();
    tools.filter_map(|(i, tool)| {
        let (steps, function) = function(tool);
        let is_given = |holder: &Value| SCHEMAS.into_iter().find(|key| holder.get(key).is_some_and(|v| !v.is_null()));
        let (steps, key) = is_given(function).map(|key| (steps, key)).or_else(|| Some((&[][..], is_given(tool)?)))?;
        let text = format!("the tool has {PARAMETERS}: {key} is ignored");
        Some(Warning::new(WarningCode::ToolParametersIgnored, Path::item("tools", i).join(steps).key(key), text))
    })
}

fn rewrite_tool(tool: &mut Value, path: Path) -> Place {
    let place = Place::at(path.clone());
    let is_flat = tool.get("function").is_none();
    let is_schema_outside = !is_flat && bring_in(tool);
    let function = if is_flat { tool.as_object_mut() } else { tool["function"].as_object_mut() };
    let Some(function) = function else { return place };
    let Some(schema) = schema_of(function) else { return place };
    function.shift_remove(PARAMETERS); // null
    *function = std::mem::take(function).into_iter().map(|(key, value)| renamed(key, value, schema)).collect();
    if is_flat {
        *tool = wrapped(std::mem::take(function));
    }
    let holder = if is_flat { path.clone() } else { path.clone().key("function") };
    let parameters = if is_schema_outside { path } else { holder.clone() }.key(schema);
    place.with("function", Place::at(holder).with(PARAMETERS, Place::at(parameters)))
}

/// Moves a schema that is beside a `function` object without parameters into that object. Returns
/// true if there is one.
fn bring_in(tool: &mut Value) -> bool {
    let Some(tool) = tool.as_object_mut() else { return false };
    let Some(schema) = schema_of(tool) else { return false };
    let is_lacking = tool["function"]
        .as_object()
        .is_some_and(|function| schema_of(function).is_none() && function.get(PARAMETERS).is_none_or(Value::is_null));
    if is_lacking && let Some(value) = tool.shift_remove(schema) {
        tool["function"][schema] = value;
    }
    is_lacking
}

/// Returns the name of the parameters if it is not `parameters`.
fn schema_of(function: &Object) -> Option<&'static str> {
    let has = |key: &str| function.get(key).is_some_and(|value| !value.is_null());
    SCHEMAS.into_iter().find(|key| has(key)).filter(|_| !has(PARAMETERS))
}

fn renamed(key: String, value: Value, schema: &str) -> (String, Value) {
    (if key == schema { PARAMETERS.to_owned() } else { key }, value)
}

/// Moves the keys that describe a function into a `function` object. Other keys stay on the tool.
fn wrapped(tool: Object) -> Value {
    let describes = |key: &str| matches!(key, "name" | "description" | "strict" | PARAMETERS);
    let (function, others): (Object, Object) = tool.into_iter().partition(|(key, _)| describes(key));
    let mut wrapped = json!({"type": "function", "function": function});
    for (key, value) in others.into_iter().filter(|(key, _)| key != "type") {
        wrapped[key] = value;
    }
    wrapped
}

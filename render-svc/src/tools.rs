//! Tool declarations in the shapes that callers use, rewritten to the one that templates and encoders are written against:
//! `{"type": "function", "function": {"name", "description", "parameters"}}`.

use serde_json::{Value, json};

use crate::chat::Object;
use crate::origins::ToolOrigin;

const PARAMETERS: &str = "parameters";
const INPUT_SCHEMA: &str = "input_schema";

/// Rewrites tools that call their parameters `input_schema`. All others stay as they are.
///
/// Returns for each tool how its shape was changed.
pub fn rewrite(tools: &mut Value) -> Vec<ToolOrigin> {
    tools.as_array_mut().into_iter().flatten().map(rewrite_tool).collect()
}

fn rewrite_tool(tool: &mut Value) -> ToolOrigin {
    let is_flat = tool.get("function").is_none();
    let function = if is_flat { tool.as_object_mut() } else { tool["function"].as_object_mut() };
    let Some(function) = function.filter(|function| has_only_input_schema(function)) else {
        return ToolOrigin::default();
    };
    *function = std::mem::take(function).into_iter().map(renamed).collect();
    if is_flat {
        *tool = wrapped(std::mem::take(function));
    }
    ToolOrigin { is_flat, has_input_schema: true }
}

fn has_only_input_schema(function: &Object) -> bool {
    function.contains_key(INPUT_SCHEMA) && !function.contains_key(PARAMETERS)
}

fn renamed((key, value): (String, Value)) -> (String, Value) {
    (if key == INPUT_SCHEMA { PARAMETERS.to_owned() } else { key }, value)
}

/// Puts what describes a function into a `function` object. Other keys stay on the tool.
fn wrapped(tool: Object) -> Value {
    let describes = |key: &str| matches!(key, "name" | "description" | "strict" | PARAMETERS);
    let (function, others): (Object, Object) = tool.into_iter().partition(|(key, _)| describes(key));
    let mut wrapped = json!({"type": "function", "function": function});
    for (key, value) in others.into_iter().filter(|(key, _)| key != "type") {
        wrapped[key] = value;
    }
    wrapped
}

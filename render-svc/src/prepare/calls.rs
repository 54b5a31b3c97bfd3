//! The shape of tool calls, and their arguments: an object, or the JSON text of one.

use serde_json::Value;
use tandem_template::{python, taint};

use crate::conversation::Invalid;
use crate::probes::ArgumentsShape;

/// Checks that the calls of each message are a list of objects.
///
/// # Errors
/// Calls of another shape, by path.
pub(super) fn check(messages: &[Value]) -> Result<(), Invalid> {
    for (i, message) in messages.iter().enumerate() {
        let field = format!("messages[{i}].tool_calls");
        match message.get("tool_calls") {
            None | Some(Value::Null) => {}
            Some(Value::Array(calls)) => {
                if let Some(j) = calls.iter().position(|call| !call.is_object()) {
                    return Err(Invalid::new(format!("{field}[{j}]"), "must be an object"));
                }
            }
            Some(_) => return Err(Invalid::new(field, "must be a list")),
        }
    }
    Ok(())
}

/// Converts the arguments of every `tool_calls[].function` to the wanted JSON type. Text that is no
/// JSON object stays text.
pub(super) fn convert_arguments(messages: &mut [Value], wanted: ArgumentsShape) {
    let calls = messages.iter_mut().filter_map(|message| message.get_mut("tool_calls")?.as_array_mut()).flatten();
    for arguments in calls.filter_map(|call| call.get_mut("function")?.get_mut("arguments")) {
        let converted = match (wanted, &*arguments) {
            (ArgumentsShape::Text, Value::Object(_)) => Some(Value::String(python::dumps(arguments))),
            (ArgumentsShape::Object, Value::String(text)) => taint::parse_object(text).map(Value::Object),
            _ => None,
        };
        if let Some(converted) = converted {
            *arguments = converted;
        }
    }
}

//! The arguments of tool calls: an object, or the JSON text of one.

use serde_json::Value;
use tandem_template::{python, taint};

use crate::probes::ArgumentsShape;

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

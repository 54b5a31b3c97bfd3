//! Tools that a prompt shows as JSON, of which no part is lost.

use serde_json::Value;
use tandem_template::python;

/// The most tools that are looked for and not found. Others are then taken as not shown as JSON.
const MAX_MISSES: usize = 4;

/// Returns for each tool whether a prompt shows it as JSON, or its function where the tool has nothing else.
pub(super) fn printed_tools(tools: Option<&Value>, prompt: &str) -> Vec<bool> {
    let (mut at, mut misses) = (0, 0);
    let mut is_printed = |tool: &Value| {
        if misses >= MAX_MISSES {
            return false;
        }
        let has_more = |tool: &Value| {
            tool.as_object().is_some_and(|tool| tool.keys().any(|key| key != "type" && key != "function"))
        };
        let function = tool.get("function").filter(|_| !has_more(tool));
        let end = [Some(tool), function].into_iter().flatten().find_map(|value| {
            let json = python::dumps(value);
            Some(at + prompt[at..].find(&json)? + json.len())
        });
        at = end.unwrap_or(at);
        misses += usize::from(end.is_none());
        end.is_some()
    };
    tools.and_then(Value::as_array).into_iter().flatten().map(|tool| is_printed(tool)).collect()
}

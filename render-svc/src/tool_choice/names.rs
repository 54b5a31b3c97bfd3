//! The names of tools.

use serde_json::Value as Json;

/// Returns the name of a tool.
pub(super) fn name(tool: &Json) -> Option<&str> {
    tool.get("function").unwrap_or(tool).get("name")?.as_str()
}

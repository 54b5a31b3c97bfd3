//! Messages with tool calls and no content, as clients of OpenAI's API send them.

use serde_json::Value;

use super::traced::Traced;
use crate::conversation::{Content, content};

/// Replaces content that is null or missing by an empty text if the message has tool calls.
pub fn fill(message: &mut Traced) {
    let has_calls = message.message.get("tool_calls").and_then(Value::as_array).is_some_and(|calls| !calls.is_empty());
    if has_calls && content(&message.message) == Content::Null {
        message.message["content"] = "".into();
    }
}

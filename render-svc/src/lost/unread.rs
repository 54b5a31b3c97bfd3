//! Fields without which the prompt is the same.

use std::collections::HashSet;

use serde_json::Value;

use super::halves::{Doubt, unaffected};
use super::parts::is_other;
use super::printed::{PrintedSearch, printed_tools};
use crate::conversation::{CONTENT, Content, Conversation, Object, blocks, content};
use crate::warning::{self, Warning, WarningCode};

/// The most renderings in which fields of one kind are looked for.
const MAX_RENDERINGS: usize = 16;
/// Keys of a schema that describe no values.
const IDENTIFIERS: [&str; 2] = ["$schema", "$id"];

/// Returns a warning, with this text, for each field that no mark can find and without which the prompt is the
/// same: a further key of a message or block, a block that is no text, content that is an object, an argument
/// without words or numbers, and the type of a parameter.
pub(super) fn warnings(
    conversation: &Conversation,
    prompt: &str,
    text: &str,
    render: impl Fn(&Conversation) -> Option<String>,
) -> Vec<Warning> {
    let fields = [
        of_messages(conversation, text),
        of_arguments(conversation, prompt, text),
        of_tools(conversation, prompt, text),
    ];
    let unread = |fields: Vec<Warning>| {
        let mut renderings = 0;
        unaffected(&fields, Doubt::Dropped, &mut |fields| {
            renderings += 1;
            (renderings <= MAX_RENDERINGS)
                .then(|| render(&without(conversation, fields)).is_some_and(|without| without == prompt))
        })
    };
    fields.into_iter().flat_map(unread).map(named).collect()
}

/// Adds the field to the text of a warning. On the wire, its path ends at the JSON that contains it.
fn named(warning: Warning) -> Warning {
    let text = match warning.path.split_once("].") {
        Some((_, field)) => format!("{field} is {}", warning.text),
        None => warning.text,
    };
    Warning { text, ..warning }
}

/// Returns the further keys of messages and blocks, blocks that are no text, and contents that are objects.
fn of_messages(conversation: &Conversation, text: &str) -> Vec<Warning> {
    let mut fields = warning::further_keys(conversation, text);
    for (i, message) in conversation.messages.iter().enumerate() {
        let path = format!("messages[{i}].{CONTENT}");
        let field = |path| Warning::new(WarningCode::MessageIgnored, path, text);
        if matches!(content(message), Content::Other(Value::Object(_))) {
            fields.push(field(path.clone()));
        }
        let others = blocks(message).iter().enumerate().filter(|(_, block)| is_other(block));
        fields.extend(others.map(|(j, _)| field(format!("{path}[{j}]"))));
    }
    fields
}

/// Returns the arguments of calls without words and numbers, such as false or an empty list, of calls that the
/// prompt does not show as JSON.
fn of_arguments(conversation: &Conversation, prompt: &str, text: &str) -> Vec<Warning> {
    let mut fields = Vec::new();
    let mut search = PrintedSearch::new(prompt);
    for (i, message) in conversation.messages.iter().enumerate() {
        let calls = message.get("tool_calls").and_then(Value::as_array).into_iter().flatten().enumerate();
        for (j, call) in calls {
            let (within, function) = call.get("function").map_or(("", call), |function| (".function", function));
            let arguments = function.get("arguments");
            let fields_of = arguments.and_then(Value::as_object).into_iter().flatten();
            let mut silent = fields_of.filter(|(_, value)| is_silent(value)).peekable();
            if silent.peek().is_none() || search.finds(arguments) {
                continue;
            }
            fields.extend(silent.map(|(key, _)| {
                let path = format!("messages[{i}].tool_calls[{j}]{within}.arguments.{key}");
                Warning::new(WarningCode::ToolCallsIgnored, path, text)
            }));
        }
    }
    fields
}

/// Returns true if a value has neither words nor numbers.
fn is_silent(value: &Value) -> bool {
    match value {
        Value::Null | Value::Bool(_) => true,
        Value::Number(_) => false,
        Value::String(text) => text.trim().is_empty(),
        Value::Array(items) => items.iter().all(is_silent),
        Value::Object(fields) => fields.values().all(is_silent),
    }
}

/// Returns the types, required parameters and marks such as `strict` of tools that the prompt does not show as
/// JSON.
fn of_tools(conversation: &Conversation, prompt: &str, text: &str) -> Vec<Warning> {
    let tools = conversation.tools.as_ref().and_then(Value::as_array).into_iter().flatten().enumerate();
    let printed = printed_tools(conversation.tools.as_ref(), prompt);
    let mut fields = Vec::new();
    for (i, tool) in tools.filter(|(i, _)| !printed[*i]) {
        let path = format!("tools[{i}]");
        let keys = tool.as_object().into_iter().flatten();
        for (key, value) in keys.filter(|(key, _)| *key != "type") {
            add_kinds(value, &format!("{path}.{key}"), key, &mut |path| {
                fields.push(Warning::new(WarningCode::ToolsIgnored, path, text));
            });
        }
    }
    fields
}

/// Adds the path of each field within a schema that has no words.
fn add_kinds(value: &Value, path: &str, key: &str, add: &mut impl FnMut(String)) {
    match value {
        Value::Bool(_) | Value::Null => add(path.to_owned()),
        Value::String(text) if text.trim().is_empty() => add(path.to_owned()),
        Value::String(kind) if kind == "object" => {}
        Value::String(_) | Value::Array(_) if matches!(key, "type" | "required" | "$ref") => add(path.to_owned()),
        Value::Object(fields) => {
            for (key, value) in fields.iter().filter(|(key, _)| !IDENTIFIERS.contains(&key.as_str())) {
                add_kinds(value, &format!("{path}.{key}"), key, add);
            }
        }
        Value::Array(items) => {
            items.iter().enumerate().for_each(|(i, item)| add_kinds(item, &format!("{path}[{i}]"), "", add));
        }
        _ => {}
    }
}

/// Returns the conversation without the fields at the paths of these warnings. Content becomes an empty object.
fn without(conversation: &Conversation, fields: &[Warning]) -> Conversation {
    let paths: HashSet<&str> = fields.iter().map(|field| field.path.as_str()).collect();
    let mut without = conversation.clone();
    for (i, message) in without.messages.iter_mut().enumerate() {
        let path = format!("messages[{i}]");
        let content = message.get_mut(CONTENT).filter(|_| paths.contains(&*format!("{path}.{CONTENT}")));
        content.into_iter().for_each(|content| *content = Object::new().into());
        remove(message, &path, &paths);
    }
    let tools = without.tools.as_mut().and_then(Value::as_array_mut).into_iter().flatten();
    tools.enumerate().for_each(|(i, tool)| remove(tool, &format!("tools[{i}]"), &paths));
    without
}

/// Returns true for the path of a message's content.
fn is_content(path: &str) -> bool {
    path.strip_prefix("messages[").and_then(|rest| rest.split_once(']')).is_some_and(|(_, rest)| rest == ".content")
}

/// Removes the fields at these paths. Content that is an object stays.
fn remove(value: &mut Value, path: &str, paths: &HashSet<&str>) {
    let is_kept = |value: &mut Value, path: String| {
        remove(value, &path, paths);
        !paths.contains(&*path) || is_content(&path)
    };
    match value {
        Value::Object(fields) => {
            fields.retain(|key, value| is_kept(value, format!("{path}.{key}")));
        }
        Value::Array(items) => {
            let mut index = 0..;
            items.retain_mut(|item| is_kept(item, format!("{path}[{}]", index.next().unwrap_or_default())));
        }
        _ => {}
    }
}

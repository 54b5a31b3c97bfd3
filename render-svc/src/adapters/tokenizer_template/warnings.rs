//! Warnings about parts of a conversation that a template does not read, and about arguments of tool
//! calls. They follow from the template's source, from its facts, and from the variables that it
//! looked up.

use serde_json::Value;

use super::reserved;
use crate::conversation::Conversation;
use crate::model::NamedTemplate;
use crate::probes::ArgumentsShape;
use crate::warning::{Warning, WarningCode};

/// Warns of tools, documents and arguments that the template never reads, and of tool call
/// arguments of a type that it does not support. `read` are the variables that it looked up for this
/// conversation.
pub(super) fn of(named: &NamedTemplate, conversation: &Conversation, read: &[String]) -> Vec<Warning> {
    let template = &named.template;
    let Conversation { messages, template_args, .. } = conversation;
    let mut warnings = Vec::new();
    if conversation.has_tools() && !template.reads("tools") {
        warnings.push(unread(WarningCode::ToolsIgnored, "tools"));
    }
    if conversation.has_documents() && !template.reads("documents") {
        warnings.push(unread(WarningCode::DocumentsIgnored, "documents"));
    }
    warnings.extend(reserved::warnings(template_args));
    let given = template_args.keys().filter(|name| !reserved::is_reserved(name));
    warnings.extend(given.filter_map(|name| unread_argument(named, name, read)));
    warnings.extend(arguments(named.facts.tools.arguments, messages));
    warnings
}

/// Warns of an argument that the template did not look up, unless its value changes the prompt of another
/// conversation.
fn unread_argument(named: &NamedTemplate, name: &String, read: &[String]) -> Option<Warning> {
    let path = format!("template_args.{name}");
    if !named.template.reads(name) {
        return Some(unread(WarningCode::TemplateArgUnknown, &path));
    }
    let changes_another = || named.facts.arguments.iter().any(|fact| fact.name == *name);
    let text = format!("the model's chat template does not read {path} in this conversation: ignored");
    (!read.contains(name) && !changes_another()).then(|| Warning::new(WarningCode::TemplateArgUnknown, path, text))
}

fn unread(code: WarningCode, path: &str) -> Warning {
    Warning::new(code, path, format!("the model's chat template never reads {path}: ignored"))
}

/// Returns a warning for each call whose arguments have another type than the template requires.
fn arguments(wanted: ArgumentsShape, messages: &[Value]) -> Vec<Warning> {
    let (is_wrong, text): (fn(&Value) -> bool, _) = match wanted {
        ArgumentsShape::Object => (Value::is_string, "are text, and the model's chat template wants an object"),
        ArgumentsShape::Text => (Value::is_object, "are an object, and the model's chat template wants text"),
        ArgumentsShape::Either | ArgumentsShape::Unread => return Vec::new(),
    };
    let calls = messages.iter().enumerate().flat_map(|(i, message)| calls(message).map(move |(j, call)| (i, j, call)));
    let wrong = calls.filter_map(|(i, j, call)| {
        let (within, arguments) = arguments_of(call)?;
        is_wrong(arguments).then(|| format!("messages[{i}].tool_calls[{j}].{within}"))
    });
    wrong.map(|path| warning(path, text)).collect()
}

fn warning(path: String, text: &str) -> Warning {
    Warning::new(WarningCode::ToolArgumentsType, path, format!("the arguments {text}"))
}

fn calls(message: &Value) -> impl Iterator<Item = (usize, &Value)> {
    let calls = message.get("tool_calls").and_then(Value::as_array);
    calls.into_iter().flatten().enumerate()
}

/// Returns a call's arguments and their path. `{"function": …}` around them is optional.
fn arguments_of(call: &Value) -> Option<(&'static str, &Value)> {
    match call.get("function") {
        Some(function) => Some(("function.arguments", function.get("arguments")?)),
        None => Some(("arguments", call.get("arguments")?)),
    }
}

//! Warnings about parts of a conversation that a template does not read, and about arguments of tool
//! calls. They follow from the template's source, from its facts, and from the variables that it
//! looked up.

use serde_json::Value;
use tandem_common::field::Path;

use super::reserved;
use crate::conversation::{Conversation, function};
use crate::model::NamedTemplate;
use crate::probes::ArgumentsShape;
use crate::walk::{Part, walk};
use crate::warning::{Warning, WarningCode};

/// Warns of tools, documents and arguments that the template never reads, and of tool call
/// arguments of a type that it does not support. `read` are the variables that it looked up for this
/// conversation.
pub(super) fn of(named: &NamedTemplate, conversation: &Conversation, read: &[String]) -> Vec<Warning> {
    let template = &named.template;
    let template_args = &conversation.template_args;
    let mut warnings = Vec::new();
    if conversation.has_tools() && !template.reads("tools") {
        warnings.push(unread(WarningCode::ToolsIgnored, "tools".into()));
    }
    if conversation.has_documents() && !template.reads("documents") {
        warnings.push(unread(WarningCode::DocumentsIgnored, "documents".into()));
    }
    warnings.extend(reserved::warnings(template_args));
    let given = template_args.keys().filter(|name| !reserved::is_reserved(name));
    warnings.extend(given.filter_map(|name| unread_argument(named, name, read)));
    warnings.extend(arguments(named.facts.tools.arguments, conversation));
    warnings
}

/// Warns of an argument that the template did not look up, unless its value changes the prompt of another
/// conversation.
fn unread_argument(named: &NamedTemplate, name: &String, read: &[String]) -> Option<Warning> {
    let path = Path::from("template_args").key(name.clone());
    if !named.template.reads(name) {
        return Some(unread(WarningCode::TemplateArgUnknown, path));
    }
    let changes_another = || named.facts.arguments.iter().any(|fact| fact.name == *name);
    let text = format!("the model's chat template does not read {path} in this conversation: ignored");
    (!read.contains(name) && !changes_another()).then(|| Warning::new(WarningCode::TemplateArgUnknown, path, text))
}

fn unread(code: WarningCode, path: Path) -> Warning {
    let text = format!("the model's chat template never reads {path}: ignored");
    Warning::new(code, path, text)
}

/// Returns a warning for each call whose arguments have another type than the template requires.
fn arguments(wanted: ArgumentsShape, conversation: &Conversation) -> Vec<Warning> {
    let (is_wrong, text): (fn(&Value) -> bool, _) = match wanted {
        ArgumentsShape::Object => (Value::is_string, "are text, and the model's chat template wants an object"),
        ArgumentsShape::Text => (Value::is_object, "are an object, and the model's chat template wants text"),
        ArgumentsShape::Either | ArgumentsShape::Unread => return Vec::new(),
    };
    let mut warnings = Vec::new();
    walk(conversation, &mut |at, part| {
        let Part::Call(call) = part else { return };
        let (steps, function) = function(call);
        if function.get("arguments").is_some_and(is_wrong) {
            let path = at.path().join(steps).key("arguments");
            warnings.push(Warning::new(WarningCode::ToolArgumentsType, path, format!("the arguments {text}")));
        }
    });
    warnings
}

//! Fields without which the prompt is the same.

use serde_json::Value;
use tandem_common::field::{Path, Step, Steps};
use tandem_template::python;

use super::halves::{Doubt, unaffected};
use super::parts::is_other;
use super::printed::{PrintedSearch, printed_tools};
use crate::conversation::{CONTENT, Content, Conversation, Object, REASONING_KEYS, content, function};
use crate::walk::{At, Part, walk};
use crate::warning::{Warning, WarningCode, further_keys_of_block};

/// The most renderings in which fields of one kind are looked for.
const MAX_RENDERINGS: usize = 16;
/// Keys of a schema that describe no values.
const IDENTIFIERS: [&str; 2] = ["$schema", "$id"];

/// The keys of messages that most templates read.
const USUAL_KEYS: [&str; 6] = ["role", "content", "name", "tool_calls", "tool_call_id", "function_call"];

/// A field that may be unread: the warning's code, and the steps to the field.
type Field<'c> = (WarningCode, Vec<Step<&'c str>>);

/// Returns a warning, with this text, for each field that no mark can find and without which the prompt is the
/// same: a further key of a message or block, a block that is no text, content that is an object, an argument
/// without words or numbers, and the type of a parameter.
pub(super) fn warnings(
    conversation: &Conversation,
    prompt: &str,
    text: &str,
    render: impl Fn(&Conversation) -> Option<String>,
) -> Vec<Warning> {
    let fields = [of_messages(conversation), of_arguments(conversation, prompt), of_tools(conversation, prompt)];
    // On the wire, the path of a field ends at the JSON that contains it.
    let text = |field: &Steps<'_>| match field {
        [] => text.to_owned(),
        field => format!("{} is {text}", Path::from(field)),
    };
    let unread = fields.into_iter().flat_map(|fields| {
        let mut renderings = 0;
        unaffected(&fields, Doubt::Dropped, &mut |fields| {
            renderings += 1;
            (renderings <= MAX_RENDERINGS)
                .then(|| render(&without(conversation, fields)).is_some_and(|without| without == prompt))
        })
    });
    unread.map(|(code, steps)| Warning::new(code, &*steps, text(&steps[2..]))).collect()
}

/// Returns the fields of messages that only some templates read: the further keys of messages and blocks, such as
/// the mark of a failed result, blocks that are no text, and contents that are objects. An empty value is none.
fn of_messages(conversation: &Conversation) -> Vec<Field<'_>> {
    let (mut keys, mut contents) = (Vec::new(), Vec::new());
    let is_usual =
        |key: &str, value: &Value| USUAL_KEYS.contains(&key) || (REASONING_KEYS.contains(&key) && value.is_string());
    walk(conversation, &mut |at, part| match part {
        Part::Message(message) => {
            let fields = message.as_object().into_iter().flatten();
            let further = fields.filter(|(key, value)| !is_usual(key, value) && python::is_true(value));
            keys.extend(further.map(|(key, _)| at.steps_to(&[Step::Key(key)])));
            if matches!(content(message), Content::Other(Value::Object(_))) {
                contents.push(at.steps_to(&[Step::Key(CONTENT)]));
            }
        }
        Part::Block(block, _) => {
            keys.extend(further_keys_of_block(block).map(|(key, _)| at.steps_to(&[Step::Key(key)])));
            contents.extend(is_other(block).then(|| at.steps_to(&[])));
        }
        _ => {}
    });
    keys.append(&mut contents);
    keys.into_iter().map(|steps| (WarningCode::MessageIgnored, steps)).collect()
}

/// Returns the arguments of calls without words and numbers, such as false or an empty list, of calls that the
/// prompt does not show as JSON.
fn of_arguments<'c>(conversation: &'c Conversation, prompt: &str) -> Vec<Field<'c>> {
    let mut fields = Vec::new();
    let mut search = PrintedSearch::new(prompt);
    walk(conversation, &mut |at, part| {
        let Part::Call(call) = part else { return };
        let (steps, function) = function(call);
        let arguments = function.get("arguments");
        let fields_of = arguments.and_then(Value::as_object).into_iter().flatten();
        let mut silent = fields_of.filter(|(_, value)| is_silent(value)).peekable();
        if silent.peek().is_none() || search.finds(arguments) {
            return;
        }
        let steps_to = |key| [steps, &[Step::Key("arguments"), Step::Key(key)]].concat();
        fields.extend(silent.map(|(key, _)| (WarningCode::ToolCallsIgnored, at.steps_to(&steps_to(key)))));
    });
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
fn of_tools<'c>(conversation: &'c Conversation, prompt: &str) -> Vec<Field<'c>> {
    let tools = conversation.tools.as_ref().and_then(Value::as_array).into_iter().flatten().enumerate();
    let printed = printed_tools(conversation.tools.as_ref(), prompt);
    let mut fields = Vec::new();
    for (i, tool) in tools.filter(|(i, _)| !printed[*i]) {
        let keys = tool.as_object().into_iter().flatten();
        for (key, value) in keys.filter(|(key, _)| *key != "type") {
            add_kinds(value, &mut At::new("tools", i).steps_to(&[Step::Key(key)]), &mut fields);
        }
    }
    fields
}

/// Adds each field within a schema that has no words. `steps` lead to the schema.
fn add_kinds<'c>(schema: &'c Value, steps: &mut Vec<Step<&'c str>>, fields: &mut Vec<Field<'c>>) {
    let is_kind = matches!(steps.last(), Some(Step::Key("type" | "required" | "$ref")));
    let mut add_within = |step, value| {
        steps.push(step);
        add_kinds(value, steps, fields);
        steps.pop();
    };
    match schema {
        Value::String(kind) if kind == "object" => {}
        Value::Object(within) => {
            let within = within.iter().filter(|(key, _)| !IDENTIFIERS.contains(&key.as_str()));
            within.for_each(|(key, value)| add_within(Step::Key(key), value));
        }
        Value::Array(items) if !is_kind => {
            items.iter().enumerate().for_each(|(i, item)| add_within(Step::Index(i), item));
        }
        Value::Number(_) => {}
        Value::String(text) if !is_kind && !text.trim().is_empty() => {}
        _ => fields.push((WarningCode::ToolsIgnored, steps.clone())),
    }
}

/// Returns the conversation without these fields. Content becomes an empty object.
fn without(conversation: &Conversation, fields: &[Field<'_>]) -> Conversation {
    let mut without = conversation.clone();
    let mut fields: Vec<_> = fields.iter().map(|(_, steps)| &**steps).collect();
    // The items of a list are taken out from its end.
    fields.sort_unstable();
    for steps in fields.into_iter().rev() {
        match steps {
            [Step::Key("messages"), Step::Index(i), Step::Key(CONTENT)] => {
                without.messages[*i][CONTENT] = Object::new().into()
            }
            steps => without.remove(steps),
        }
    }
    without
}

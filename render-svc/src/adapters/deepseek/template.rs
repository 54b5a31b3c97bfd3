//! Chat templates in the folders of models whose maker ships an encoder and no template.

use serde_json::{Value, json};
use tandem_template::{LocalTime, python};

use super::markup::{BOS, DSML};
use super::settings::SWITCHES;
use crate::adapter::{AdapterOutput, Input};
use crate::conversation::Conversation;
use crate::error::Error;
use crate::model::Model;
use crate::probes::{ArgumentsShape, LIMITS};

type Render = fn(&Model, &Input<'_>) -> Result<AdapterOutput, Error>;

/// Returns how the model's chat template differs from the encoder for short conversations; None if it
/// does not, or if the model has none. A template that exceeds the limits of probes differs.
pub(super) fn difference(model: &Model, encoder: Render) -> Option<String> {
    model.templates.choose(None, false).ok()?;
    let cases = cases();
    let (name, _) = cases.iter().find(|(_, conversation)| is_different(model, encoder, conversation))?;
    Some(format!("the model ships a chat template that renders {name} differently from its maker's encoder"))
}

/// Returns true if the model's chat template writes DSML for a short conversation with tools and calls,
/// with this name of calls: `function_calls`, or another one.
pub(super) fn writes_dsml(model: &Model, has_function_calls: bool) -> bool {
    // Rendering is not needed for nearly all models.
    let is_mentioned = model.templates.iter().any(|named| named.template.literal_text().contains(DSML));
    let writes = |(_, conversation): (_, Conversation)| {
        let prompt = applied(model, &conversation).filter(|prompt| prompt.contains(DSML));
        prompt.is_some_and(|prompt| prompt.contains("function_calls") == has_function_calls)
    };
    is_mentioned && cases().into_iter().any(writes)
}

fn is_different(model: &Model, encoder: Render, conversation: &Conversation) -> bool {
    let encoded = encoder(model, &Input::of(conversation)).map(|output| output.prompt);
    // A model whose files name no bos token has a template without one.
    let without_bos = |prompt: String| prompt.trim_start_matches(BOS).to_owned();
    applied(model, conversation).map(without_bos) != encoded.ok().map(without_bos)
}

/// Returns the prompt of the template that the model has for the conversation.
fn applied(model: &Model, conversation: &Conversation) -> Option<String> {
    let named = model.templates.choose(None, conversation.tools.is_some()).ok()?;
    let mut messages = conversation.messages.clone();
    if named.facts.tools.arguments == ArgumentsShape::Text {
        messages.iter_mut().for_each(write_arguments);
    }
    let input = tandem_template::Input {
        messages: &messages,
        tools: conversation.tools.as_ref(),
        documents: None,
        args: &conversation.template_args,
        special_tokens: &model.special_tokens,
        add_generation_prompt: true,
        continue_final_message: None,
        now: LocalTime::EPOCH,
        taint: None,
    };
    named.template.apply(&input, &LIMITS).ok().map(|applied| applied.text)
}

/// Replaces the arguments of the message's calls by their JSON text.
fn write_arguments(message: &mut Value) {
    for call in message.get_mut("tool_calls").and_then(Value::as_array_mut).into_iter().flatten() {
        if let Some(arguments) = call.pointer_mut("/function/arguments") {
            *arguments = python::dumps(arguments).into();
        }
    }
}

/// Returns the conversations that are compared, each with its name. Arguments of calls are objects.
fn cases() -> Vec<(&'static str, Conversation)> {
    let said = |role: &str, text: &str| json!({"role": role, "content": text});
    let thought = |mut message: Value| {
        message["reasoning_content"] = "thought".into();
        message
    };
    let of = |messages: Vec<Value>| Conversation { messages, ..Conversation::default() };
    let rule = || said("system", "rule");
    let declared = |messages: Vec<Value>| Conversation { tools: Some(tools()), ..of(messages) };
    let thinking = |conversation: Conversation| Conversation {
        template_args: SWITCHES.iter().map(|&name| (name.to_owned(), on(name))).collect(),
        ..conversation
    };
    let first = said("user", "first");
    let two_turns = || vec![rule(), first.clone(), thought(said("assistant", "answer")), said("user", "second")];
    let with_call = || vec![rule(), first.clone(), thought(call()), result()];
    let after_call = || [with_call(), vec![said("assistant", "answer"), said("user", "second")]].concat();
    vec![
        ("a question", of(vec![first.clone()])),
        ("two turns", of(two_turns())),
        ("two turns with reasoning", thinking(of(two_turns()))),
        ("tools", declared(vec![first.clone()])),
        ("tools beside a system message", declared(vec![rule(), first.clone()])),
        ("a call and its result", declared(with_call())),
        ("a call and its result with reasoning", thinking(declared(with_call()))),
        ("a turn after a call", declared(after_call())),
    ]
}

/// Returns the value of a switch that turns thinking on.
fn on(switch: &str) -> Value {
    if switch == "thinking_mode" { "thinking".into() } else { true.into() }
}

fn tools() -> Value {
    let parameters = json!({"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]});
    json!([{"type": "function", "function": {"name": "find", "description": "Finds", "parameters": parameters}}])
}

/// Returns a message with a call, with an argument that is text and one that is not.
fn call() -> Value {
    let function = json!({"name": "find", "arguments": {"city": "Bonn", "limit": 2}});
    let calls = json!([{"id": "call_1", "type": "function", "function": function}]);
    json!({"role": "assistant", "content": "", "tool_calls": calls})
}

fn result() -> Value {
    json!({"role": "tool", "tool_call_id": "call_1", "name": "find", "content": "found"})
}

//! The parts of a conversation that a prompt should show: texts of messages, reasoning, calls,
//! tools and documents.

use std::collections::HashSet;

use serde_json::Value;
use tandem_common::field::Step;

use super::listed::{of_document, of_tool};
use super::part::{Group, Part, Place, Within};
use super::printed::printed_tools;
use super::steps;
use super::texts::{Texts, numbers, words_of};
use crate::conversation::{CONTENT, Content, Conversation, author, blocks, content, function, kind, media, reasonings};
use crate::probes::{Finding, REASONING_END, REASONING_START, TemplateFacts};
use crate::warning::WarningCode;

/// Returns the parts of a conversation that have text. Within a tool that a prompt shows as JSON, there is none.
pub(super) fn of<'c>(conversation: &'c Conversation, facts: &TemplateFacts, prompt: &str) -> Vec<Part<'c>> {
    let Conversation { messages, tools, documents, .. } = conversation;
    let mut parts = Vec::with_capacity(messages.len() + 1);
    let last_user = messages.iter().rposition(|message| role(message) == "user");
    let mut called = HashSet::new();
    for (at, message) in messages.iter().enumerate() {
        let name = message.get("name").and_then(Value::as_str).filter(|name| !name.trim().is_empty());
        // The name of a result repeats its call's.
        let is_repeat = |name: &str| author(message).is_none() && called.contains(name);
        parts.extend(name.map(|name| Part::of_name(at, group(message), name, is_repeat(name))));
        add_message(&mut parts, at, message, last_user, facts);
        called.extend(calls(message).map(|(_, _, name)| name).chain(earlier_call(message)));
    }
    let has_system = messages.first().is_some_and(|message| role(message) == "system");
    let declared = if has_system { facts.tools.declared_beside_system } else { facts.tools.declared };
    let printed = printed_tools(tools.as_ref(), prompt);
    for (item, tool) in items(tools) {
        let mut of_tool = of_tool(item, tool, declared, facts);
        if printed[item] {
            of_tool.truncate(1);
            of_tool.iter_mut().for_each(Part::set_printed);
        }
        parts.append(&mut of_tool);
    }
    parts.extend(items(documents).flat_map(|(item, document)| of_document(item, document, facts)));
    parts
}

/// Adds the parts of a message in the order of prompts. `last_user` is the index of the last user's message.
fn add_message<'c>(
    parts: &mut Vec<Part<'c>>,
    at: usize,
    message: &'c Value,
    last_user: Option<usize>,
    facts: &TemplateFacts,
) {
    let group = group(message);
    let part = |within, code, text: &'c str, finding, is_shared| Part {
        place: Place::Message(at, within),
        code,
        texts: Texts::One(text),
        finding,
        is_shared,
        is_repeat: false,
        group,
        within: &[],
        steps: Vec::new(),
    };
    let mut add = |within, code, text: &'c str, finding| {
        parts.extend(Some(part(within, code, text, finding, false)).filter(|part| part.texts.has_words()));
    };
    for (key, text) in reasonings(message) {
        let finding = of_reasoning(message, last_user.is_none_or(|last| at > last), facts);
        add(Within::Reasoning(key), WarningCode::ReasoningIgnored, text, finding);
    }
    each_content(message, |within, text| {
        let (code, finding) = match within {
            Within::Section if facts.reasoning.is_cut_from_text && last_user.is_some_and(|last| at < last) => {
                (WarningCode::ReasoningIgnored, Finding::LeftOut)
            }
            Within::Section => (WarningCode::ReasoningIgnored, Finding::Unknown),
            _ => (WarningCode::MessageIgnored, of_content(message, at, facts)),
        };
        add(within, code, text, finding);
    });
    for (number, (steps, value)) in of_other_content(message).into_iter().enumerate().take(MAX_VALUES) {
        let texts = Some(words_of(value)).filter(|texts| !texts.is_empty()).unwrap_or_else(|| numbers(value));
        let texts = Some(texts).filter(|texts| !texts.is_empty()).map(Texts::Many);
        let of_value = |texts| Part {
            texts,
            steps,
            ..part(Within::Value(number), WarningCode::MessageIgnored, "", Finding::Unknown, false)
        };
        parts.extend(texts.map(of_value));
    }
    parts.extend(
        earlier_call(message)
            .map(|name| part(Within::FunctionCall, WarningCode::ToolCallsIgnored, name, Finding::Unknown, true)),
    );
    for (index, call, name) in calls(message) {
        add_call(parts, at, index, call, name, facts.tools.calls);
    }
}

/// Returns the values in content that is an object, and in blocks that are neither text nor media, each with
/// the way from the message.
fn of_other_content(message: &Value) -> Vec<(Vec<Step<&str>>, &Value)> {
    let mut values = Vec::new();
    match content(message) {
        Content::Null | Content::Text(_) => {}
        Content::Other(value) => steps::values(value, &mut vec![Step::Key(CONTENT)], &mut values),
        Content::Blocks(blocks) => {
            let others = blocks.iter().enumerate().filter(|(_, block)| is_other(block));
            for (index, block) in others {
                let way = [Step::Key(CONTENT), Step::Index(index)];
                let fields = block.as_object().into_iter().flatten().filter(|(_, field)| !has_media(field));
                for (key, field) in fields {
                    steps::values(field, &mut [&way[..], &[Step::Key(key)]].concat(), &mut values);
                }
            }
        }
    }
    let is_key = |step: Option<&Step<&str>>| matches!(step, Some(Step::Key(key)) if IDENTIFIERS.contains(key));
    values.retain(|(steps, _)| !is_key(steps.last()));
    values
}

/// Returns true for a list of blocks with a medium.
fn has_media(field: &Value) -> bool {
    field.as_array().is_some_and(|blocks| blocks.iter().any(|block| media::kind(block).is_some()))
}

/// Returns true for a block that is neither text nor a medium.
pub(super) fn is_other(block: &Value) -> bool {
    kind(block).is_some_and(|kind| kind != "text") && media::kind(block).is_none()
}

/// Keys of blocks that say no words.
const IDENTIFIERS: [&str; 3] = ["type", "id", "tool_use_id"];

/// The most values in the arguments of one call, or in one content, that are looked for.
const MAX_VALUES: usize = 64;

/// Adds a call, its name, which may repeat the call's identifier, and the values in its arguments, each at the
/// place of its number.
fn add_call<'c>(parts: &mut Vec<Part<'c>>, at: usize, index: usize, call: &'c Value, name: &'c str, finding: Finding) {
    let part = |within, texts, is_shared, steps| Part {
        place: Place::Message(at, within),
        code: WarningCode::ToolCallsIgnored,
        texts,
        finding,
        is_shared,
        is_repeat: false,
        group: Group::Dialogue,
        within: &[],
        steps,
    };
    let (steps, given) = arguments(call);
    let texts = given.map_or_else(Vec::new, words_of);
    let is_shared = texts.is_empty();
    let is_identified = call.get("id").and_then(Value::as_str).is_some_and(|id| id.contains(name));
    if !is_identified || is_shared {
        let steps = [&steps[..steps.len() - 1], &[Step::Key("name")]].concat();
        let named = part(Within::CallName(index), Texts::One(name), is_shared, steps);
        parts.push(Part { finding: Finding::Unknown, is_repeat: is_identified, ..named });
    }
    let texts = if is_shared { Texts::One(name) } else { Texts::Many(texts) };
    parts.push(part(Within::Call(index, None), texts, is_shared, Vec::new()));
    let mut values = Vec::new();
    let given = given.filter(|given| given.is_object());
    given.into_iter().for_each(|given| steps::values(given, &mut steps.to_vec(), &mut values));
    for (number, (steps, value)) in values.into_iter().enumerate().take(MAX_VALUES) {
        let texts = Some(words_of(value)).filter(|texts| !texts.is_empty()).unwrap_or_else(|| numbers(value));
        if !texts.is_empty() {
            parts.push(part(Within::Call(index, Some(number)), Texts::Many(texts), false, steps));
        }
    }
}

fn group(message: &Value) -> Group {
    match role(message) {
        "system" | "developer" => Group::Instructions,
        _ => Group::Dialogue,
    }
}

fn role(message: &Value) -> &str {
    message.get("role").and_then(Value::as_str).unwrap_or_default()
}

/// Adds the texts of a message's content.
fn each_content<'c>(message: &'c Value, mut add: impl FnMut(Within, &'c str)) {
    match content(message) {
        Content::Text(text) => match section(message, text) {
            Some((section, rest)) => {
                add(Within::Section, section);
                add(Within::Content, rest);
            }
            None => add(Within::Content, text),
        },
        Content::Blocks(blocks) => {
            let texts = blocks.iter().enumerate().filter(|(_, block)| kind(block) == Some("text"));
            for (i, block) in texts {
                block.get("text").and_then(Value::as_str).into_iter().for_each(|text| add(Within::Block(i), text));
            }
        }
        Content::Null | Content::Other(_) => {}
    }
}

/// Returns the reasoning at the start of an assistant's text, and the rest.
pub(super) fn section<'m>(message: &Value, text: &'m str) -> Option<(&'m str, &'m str)> {
    let (section, rest) = text.split_once(REASONING_END).filter(|_| role(message) == "assistant")?;
    let section = section.trim_start();
    Some((section.strip_prefix(REASONING_START).unwrap_or(section), rest))
}

/// Returns the finding about a message's content. A template shows the words of users and assistants.
fn of_content(message: &Value, at: usize, facts: &TemplateFacts) -> Finding {
    let is_list = !blocks(message).is_empty();
    match role(message) {
        "user" | "assistant" if !is_list => Finding::Shown,
        "tool" if !is_list => facts.tools.results,
        "system" | "developer" => facts.instructions.finding(role(message), at == 0),
        _ => Finding::Unknown,
    }
}

fn of_reasoning(message: &Value, is_current: bool, facts: &TemplateFacts) -> Finding {
    let has_calls = calls(message).next().is_some();
    match (is_current, has_calls) {
        (true, true) => facts.reasoning.beside_call,
        (true, false) => facts.reasoning.last,
        (false, false) => facts.reasoning.earlier,
        (false, true) => Finding::Unknown,
    }
}

/// Returns each call of a message, and its name.
fn calls(message: &Value) -> impl Iterator<Item = (usize, &Value, &str)> {
    let calls = message.get("tool_calls").and_then(Value::as_array).into_iter().flatten().enumerate();
    calls.filter_map(|(i, call)| Some((i, call, function(call).1.get("name")?.as_str()?)))
}

/// Returns the arguments of a call, and the way to them.
fn arguments(call: &Value) -> (&[Step<&'static str>], Option<&Value>) {
    const WAY: [Step<&'static str>; 2] = [Step::Key("function"), Step::Key("arguments")];
    let way: &[_] = if call.get("function").is_some() { &WAY } else { &WAY[1..] };
    (way, function(call).1.get("arguments"))
}

/// Returns the name in OpenAI's earlier form of a call.
fn earlier_call(message: &Value) -> Option<&str> {
    message.get("function_call")?.get("name")?.as_str()
}

fn items(list: &Option<Value>) -> impl Iterator<Item = (usize, &Value)> {
    list.as_ref().and_then(Value::as_array).into_iter().flatten().enumerate()
}

//! The parts of a conversation that a prompt should show: texts of messages, reasoning, calls,
//! tools and documents.

use std::slice;

use serde_json::Value;

use crate::conversation::{Content, Conversation, REASONING_KEYS, blocks, content, kind};
use crate::probes::{DOCUMENT_KEYS, Finding, REASONING_END, REASONING_START, TemplateFacts};
use crate::warning::WarningCode;

/// The lists beside the messages.
pub(super) const TOOLS: usize = usize::MAX - 1;
pub(super) const DOCUMENTS: usize = usize::MAX;

/// The place of a part: the index of its message or one of [`TOOLS`] and [`DOCUMENTS`], then its
/// place within.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Place(usize, Within);

/// A place within a message, or the index in a list.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Within {
    Content,
    Block(usize),
    Reasoning(&'static str),
    /// The reasoning in a text.
    Section,
    Call(usize),
    /// The call of a message in OpenAI's earlier form.
    FunctionCall,
    Item(usize),
}

/// A part.
#[derive(Debug)]
pub(super) struct Part<'c> {
    pub place: Place,
    pub code: WarningCode,
    /// The part is shown if one of these texts is.
    pub texts: Texts<'c>,
    /// The treatment of such a part in the template's probes.
    pub finding: Finding,
    /// True if a prompt may contain its texts without showing it, such as the name of a tool.
    pub is_shared: bool,
}

/// The texts of a part.
#[derive(Debug)]
pub(super) enum Texts<'c> {
    One(&'c str),
    Many(Vec<&'c str>),
}

impl<'c> Texts<'c> {
    pub(super) fn all(&self) -> &[&'c str] {
        match self {
            Self::One(text) => slice::from_ref(text),
            Self::Many(texts) => texts,
        }
    }

    fn has_words(&self) -> bool {
        self.all().iter().any(|text| !text.trim().is_empty())
    }
}

/// Texts of at least this size are rarely in a prompt by chance.
pub(super) const MIN_BYTES: usize = 8;

impl Part<'_> {
    pub(super) fn is_in(&self, list: usize) -> bool {
        self.place.0 == list
    }

    /// Returns true if none of its texts is in a prompt by chance.
    pub(super) fn is_long(&self) -> bool {
        self.texts.all().iter().all(|text| text.trim().len() >= MIN_BYTES)
    }

    /// Returns the path in the conversation.
    pub(super) fn path(&self) -> String {
        let Place(at, within) = self.place;
        match within {
            Within::Content | Within::Section => format!("messages[{at}]"),
            Within::Block(block) => format!("messages[{at}].content[{block}]"),
            Within::Reasoning(key) => format!("messages[{at}].{key}"),
            Within::Call(call) => format!("messages[{at}].tool_calls[{call}]"),
            Within::FunctionCall => format!("messages[{at}].function_call"),
            Within::Item(item) if at == TOOLS => format!("tools[{item}]"),
            Within::Item(item) => format!("documents[{item}]"),
        }
    }
}

/// Returns every part of a conversation that has text.
pub(super) fn of<'c>(conversation: &'c Conversation, facts: &TemplateFacts) -> Vec<Part<'c>> {
    let Conversation { messages, tools, documents, .. } = conversation;
    let mut parts = Vec::with_capacity(messages.len() + 1);
    let last_user = messages.iter().rposition(|message| role(message) == "user");
    for (at, message) in messages.iter().enumerate() {
        let mut add = |within, code, text: &'c str, finding| {
            let part = Part { place: Place(at, within), code, texts: Texts::One(text), finding, is_shared: false };
            parts.extend(Some(part).filter(|part| part.texts.has_words()));
        };
        // In the order of prompts.
        if let Some((key, text)) = reasoning(message) {
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
        if let Some(name) = message.get("function_call").and_then(|call| call.get("name")?.as_str()) {
            parts.push(Part {
                place: Place(at, Within::FunctionCall),
                code: WarningCode::ToolCallsIgnored,
                texts: Texts::One(name),
                finding: Finding::Unknown,
                is_shared: true,
            });
        }
        for (call, name, texts) in calls(message) {
            let is_shared = texts.is_empty();
            parts.push(Part {
                place: Place(at, Within::Call(call)),
                code: WarningCode::ToolCallsIgnored,
                texts: if is_shared { Texts::One(name) } else { Texts::Many(texts) },
                finding: facts.tools.calls,
                is_shared,
            });
        }
    }
    let has_system = messages.first().is_some_and(|message| role(message) == "system");
    let declared = if has_system { facts.tools.declared_beside_system } else { facts.tools.declared };
    parts.extend(items(tools).filter_map(|(item, tool)| {
        let place = Place(TOOLS, Within::Item(item));
        let name = function(tool).get("name")?.as_str().filter(|name| !name.trim().is_empty())?;
        let description = function(tool).get("description").and_then(Value::as_str).map(plain_start);
        let description = description.filter(|text| text.trim().len() >= MIN_BYTES);
        let texts = Texts::One(description.unwrap_or(name));
        // Messages, too, contain names.
        Some(Part {
            place,
            code: WarningCode::ToolsIgnored,
            texts,
            finding: declared,
            is_shared: description.is_none(),
        })
    }));
    parts.extend(items(documents).filter_map(|(item, document)| {
        let text = words(document)?;
        let (place, texts) = (Place(DOCUMENTS, Within::Item(item)), Texts::One(text));
        let code = WarningCode::DocumentsIgnored;
        let part = Part { place, code, texts, finding: facts.documents, is_shared: false };
        part.texts.has_words().then_some(part)
    }));
    parts
}

/// Returns the word that replaces the doubtful part of this number. It consists of lower-case
/// letters, so that templates keep it whole, and no mark is part of another one.
pub(super) fn mark(number: usize) -> String {
    let digits = format!("{number:04}");
    let letters: String = digits.bytes().map(|digit| char::from(b'a' + (digit - b'0'))).collect();
    format!("qzmark{letters}x")
}

/// Returns the conversation with a mark in place of each of these parts.
pub(super) fn marked(conversation: &Conversation, parts: &[&Part<'_>]) -> Conversation {
    let mut marked = conversation.clone();
    for (number, part) in parts.iter().enumerate() {
        let mut mark = Value::String(mark(number));
        let Place(at, within) = part.place;
        let message = marked.messages.get_mut(at);
        let slot = match within {
            Within::Content | Within::Section => message.and_then(|message| {
                mark = marked_text(message, mark.as_str()?, within == Within::Section);
                message.get_mut("content")
            }),
            Within::Block(block) => message.and_then(|m| m.get_mut("content")?.get_mut(block)?.get_mut("text")),
            Within::Reasoning(key) => message.and_then(|message| message.get_mut(key)),
            Within::Call(call) => message.and_then(|m| {
                let call = m.get_mut("tool_calls")?.get_mut(call)?;
                function_of(call)?.get_mut("arguments").into_iter().for_each(|given| mark_leaves_within(given, &mark));
                name_of(call)
            }),
            Within::FunctionCall => message.and_then(|message| message.get_mut("function_call")?.get_mut("name")),
            Within::Item(item) if at == TOOLS => marked.tools.as_mut().and_then(|tools| name_of(tools.get_mut(item)?)),
            Within::Item(item) => {
                let document = marked.documents.as_mut().and_then(|documents| documents.get_mut(item));
                let texts = part.texts.all();
                document.into_iter().for_each(|document| mark_leaves(document, &mark, |text| texts.contains(&text)));
                None
            }
        };
        if let Some(slot) = slot {
            *slot = mark;
        }
    }
    marked
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
fn section<'m>(message: &Value, text: &'m str) -> Option<(&'m str, &'m str)> {
    let (section, rest) = text.split_once(REASONING_END).filter(|_| role(message) == "assistant")?;
    let section = section.trim_start();
    Some((section.strip_prefix(REASONING_START).unwrap_or(section), rest))
}

/// Returns a message's content with a mark in place of the reasoning in a text, or of the rest.
fn marked_text(message: &Value, mark: &str, is_section: bool) -> Value {
    let text = message.get("content").and_then(Value::as_str).unwrap_or_default();
    let text = match section(message, text) {
        Some((_, rest)) if is_section => format!("{}\n{mark}\n{}{rest}", REASONING_START, REASONING_END),
        Some((section, _)) => format!("{}{section}{}\n\n{mark}", REASONING_START, REASONING_END),
        None => mark.to_owned(),
    };
    text.into()
}

/// Returns what becomes of a message's content. A template shows the words of users and assistants.
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

fn reasoning(message: &Value) -> Option<(&'static str, &str)> {
    let given =
        REASONING_KEYS.into_iter().find_map(|key| Some((key, message.get(key).filter(|value| !value.is_null())?)));
    given.and_then(|(key, value)| Some((key, value.as_str()?)))
}

/// Returns the name of each call of a message, and the texts in its arguments. Two
/// calls of one tool differ in these only.
fn calls(message: &Value) -> impl Iterator<Item = (usize, &str, Vec<&str>)> {
    let calls = message.get("tool_calls").and_then(Value::as_array).into_iter().flatten().enumerate();
    calls.filter_map(|(i, call)| {
        let name = function(call).get("name")?.as_str()?;
        let arguments = function(call).get("arguments").into_iter().flat_map(leaves);
        Some((i, name, arguments.filter(|text| !text.trim().is_empty()).collect()))
    })
}

/// Returns the start of a text that templates write as it is, also within JSON and XML.
fn plain_start(text: &str) -> &str {
    let escaped = |c: char| c.is_control() || matches!(c, '"' | '\'' | '\\' | '<' | '>' | '&');
    &text[..text.find(escaped).unwrap_or(text.len())]
}

fn items(list: &Option<Value>) -> impl Iterator<Item = (usize, &Value)> {
    list.as_ref().and_then(Value::as_array).into_iter().flatten().enumerate()
}

/// Returns the function of a tool or call. `{"function": …}` around it is optional.
fn function(value: &Value) -> &Value {
    value.get("function").unwrap_or(value)
}

fn function_of(value: &mut Value) -> Option<&mut Value> {
    if value.get("function").is_some() { value.get_mut("function") } else { Some(value) }
}

fn name_of(value: &mut Value) -> Option<&mut Value> {
    function_of(value)?.get_mut("name")
}

/// Marks the texts in a list or an object. JSON text stays, so that templates can read it.
fn mark_leaves_within(value: &mut Value, mark: &Value) {
    if !value.is_string() {
        mark_leaves(value, mark, |_| true);
    }
}

/// Returns a document's own text. Others, such as its number, may be left out. If no usual key has
/// it, it is the longest one.
fn words(document: &Value) -> Option<&str> {
    let of_usual_keys = DOCUMENT_KEYS.into_iter().filter_map(|key| document.get(key)?.as_str());
    let longest = of_usual_keys.max_by_key(|text| text.len());
    longest.or_else(|| leaves(document).into_iter().max_by_key(|text| text.len()))
}

/// Returns the texts in a document.
fn leaves(value: &Value) -> Vec<&str> {
    match value {
        Value::String(text) => vec![text],
        Value::Array(items) => items.iter().flat_map(leaves).collect(),
        Value::Object(fields) => fields.values().flat_map(leaves).collect(),
        _ => Vec::new(),
    }
}

fn mark_leaves(value: &mut Value, mark: &Value, is_marked: impl Fn(&str) -> bool + Copy) {
    match value {
        Value::String(text) if is_marked(text) => *value = mark.clone(),
        Value::Array(items) => items.iter_mut().for_each(|item| mark_leaves(item, mark, is_marked)),
        Value::Object(fields) => fields.values_mut().for_each(|field| mark_leaves(field, mark, is_marked)),
        _ => {}
    }
}

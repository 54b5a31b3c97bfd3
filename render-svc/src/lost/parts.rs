//! The parts of a conversation that a prompt should show: texts of messages, reasoning, calls,
//! tools and documents.

use serde_json::Value;

use super::schema::{self, PROPERTIES, Step};
use super::texts::{MIN_BYTES, Texts, last_plain_words, long_start};
use crate::conversation::{Content, Conversation, author, blocks, content, kind, reasonings};
use crate::probes::{DOCUMENT_KEYS, Finding, REASONING_END, REASONING_START, TemplateFacts};
use crate::warning::WarningCode;

/// A list beside the messages.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) enum List {
    Tools,
    Documents,
}

impl List {
    /// Returns its path in the conversation.
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Tools => "tools",
            Self::Documents => "documents",
        }
    }
}

/// The place of a part, in the order of warnings.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) enum Place {
    /// Within the message of this index.
    Message(usize, Within),
    /// The item of this index, or its field of this number.
    Item(List, usize, Option<usize>),
}

/// A place within a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) enum Within {
    /// The name of its author.
    Name,
    Content,
    Block(usize),
    Reasoning(&'static str),
    /// The reasoning in a text.
    Section,
    /// The call of this index, or its argument of this number.
    Call(usize, Option<usize>),
    /// The call of a message in OpenAI's earlier form.
    FunctionCall,
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
    pub group: Group,
    /// The way from a call, an item or a tool's function to the field that the part is. Empty if it is
    /// none.
    pub steps: Vec<Step<'c>>,
}

/// Parts that a prompt shows in their order. Templates differ in the places of the groups.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Group {
    /// Messages of the system and the developer.
    Instructions,
    /// All other messages.
    Dialogue,
    Tools,
    Documents,
}

impl Group {
    pub(super) const COUNT: usize = 4;
}

impl Part<'_> {
    /// Returns the index of its message.
    pub(super) fn message(&self) -> Option<usize> {
        match self.place {
            Place::Message(at, _) => Some(at),
            Place::Item(..) => None,
        }
    }

    /// Returns the item of a list that it is or belongs to.
    pub(super) fn item(&self) -> Option<(List, usize)> {
        match self.place {
            Place::Message(..) => None,
            Place::Item(list, item, _) => Some((list, item)),
        }
    }

    /// Returns the item of a list that it is.
    pub(super) fn whole_item(&self) -> Option<(List, usize)> {
        self.item().filter(|_| matches!(self.place, Place::Item(_, _, None)))
    }

    /// Returns the call that it is an argument of.
    pub(super) fn call_of_argument(&self) -> Option<Place> {
        match self.place {
            Place::Message(at, Within::Call(call, Some(_))) => Some(Place::Message(at, Within::Call(call, None))),
            _ => None,
        }
    }

    /// Returns true if it is an argument of a call, or within a field of the same item.
    pub(super) fn is_within(&self, other: &Part<'_>) -> bool {
        if self.call_of_argument() == Some(other.place) {
            return true;
        }
        self.item().is_some()
            && self.item() == other.item()
            && !other.steps.is_empty()
            && self.steps.starts_with(&other.steps)
    }

    /// Returns true if none of its texts is in a prompt by chance.
    pub(super) fn is_long(&self) -> bool {
        self.texts.all().iter().all(|text| text.trim().len() >= MIN_BYTES)
    }

    /// Returns the path in the conversation.
    pub(super) fn path(&self) -> String {
        match self.place {
            Place::Message(at, within) => match within {
                Within::Content | Within::Section => format!("messages[{at}]"),
                Within::Name => format!("messages[{at}].name"),
                Within::Block(block) => format!("messages[{at}].content[{block}]"),
                Within::Reasoning(key) => format!("messages[{at}].{key}"),
                Within::Call(call, _) => format!("messages[{at}].tool_calls[{call}]{}", self.field_path()),
                Within::FunctionCall => format!("messages[{at}].function_call"),
            },
            Place::Item(list, item, _) => {
                let function = if list == List::Tools && !self.steps.is_empty() { ".function" } else { "" };
                format!("{}[{item}]{function}{}", list.name(), self.field_path())
            }
        }
    }

    /// Returns the path of a field within its call, its item or the item's function, such as `.title`.
    pub(super) fn field_path(&self) -> String {
        let mut path = String::new();
        // A schema without its properties is lost itself.
        let schema = self.steps.strip_suffix(&[Step::Key(PROPERTIES)]).filter(|_| self.item().is_some());
        for step in schema.unwrap_or(&self.steps) {
            match step {
                Step::Key(key) => path.extend([".", key]),
                Step::Index(index) => path.push_str(&format!("[{index}]")),
            }
        }
        path
    }

    /// Returns the path of its text.
    pub(super) fn path_of_text(&self) -> String {
        match self.place {
            Place::Message(at, Within::Content | Within::Section) => format!("messages[{at}].content"),
            Place::Item(List::Tools, item, None) => format!("{}[{item}].function.description", List::Tools.name()),
            _ => self.path(),
        }
    }
}

/// Returns every part of a conversation that has text.
pub(super) fn of<'c>(conversation: &'c Conversation, facts: &TemplateFacts) -> Vec<Part<'c>> {
    let Conversation { messages, tools, documents, .. } = conversation;
    let mut parts = Vec::with_capacity(messages.len() + 1);
    let last_user = messages.iter().rposition(|message| role(message) == "user");
    for (at, message) in messages.iter().enumerate() {
        add_message(&mut parts, at, message, last_user, facts);
    }
    let has_system = messages.first().is_some_and(|message| role(message) == "system");
    let declared = if has_system { facts.tools.declared_beside_system } else { facts.tools.declared };
    parts.extend(items(tools).flat_map(|(item, tool)| of_tool(item, tool, declared, facts)));
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
    let group = match role(message) {
        "system" | "developer" => Group::Instructions,
        _ => Group::Dialogue,
    };
    let part = |within, code, text: &'c str, finding, is_shared| Part {
        place: Place::Message(at, within),
        code,
        texts: Texts::One(text),
        finding,
        is_shared,
        group,
        steps: Vec::new(),
    };
    let name = author(message);
    parts.extend(name.map(|name| part(Within::Name, WarningCode::MessageIgnored, name, Finding::Unknown, true)));
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
    let earlier_call = message.get("function_call").and_then(|call| call.get("name")?.as_str());
    parts.extend(
        earlier_call
            .map(|name| part(Within::FunctionCall, WarningCode::ToolCallsIgnored, name, Finding::Unknown, true)),
    );
    for (index, call, name) in calls(message) {
        add_call(parts, |argument| Place::Message(at, Within::Call(index, argument)), call, name, facts.tools.calls);
    }
}

/// Adds a call and its arguments, each at the place of its number.
fn add_call<'c>(
    parts: &mut Vec<Part<'c>>,
    place: impl Fn(Option<usize>) -> Place,
    call: &'c Value,
    name: &'c str,
    finding: Finding,
) {
    let part = |argument, texts, is_shared, steps| Part {
        place: place(argument),
        code: WarningCode::ToolCallsIgnored,
        texts,
        finding,
        is_shared,
        group: Group::Dialogue,
        steps,
    };
    let (steps, given) = arguments(call);
    let texts = given.map_or_else(Vec::new, words_of);
    let is_shared = texts.is_empty();
    let texts = if is_shared { Texts::One(name) } else { Texts::Many(texts) };
    parts.push(part(None, texts, is_shared, Vec::new()));
    for (number, (key, value)) in given.and_then(Value::as_object).into_iter().flatten().enumerate() {
        let texts = Some(words_of(value)).filter(|texts| !texts.is_empty()).unwrap_or_else(|| numbers(value));
        if !texts.is_empty() {
            let steps = steps.iter().copied().chain([Step::Key(key)]).collect();
            parts.push(part(Some(number), Texts::Many(texts), false, steps));
        }
    }
}

/// Returns a tool, and the parts of its schema that a template may leave out: names of parameters, unless
/// the template shows those of every tool, and descriptions and lists of values at any depth.
fn of_tool<'c>(item: usize, tool: &'c Value, declared: Finding, facts: &TemplateFacts) -> Vec<Part<'c>> {
    let tool = function(tool);
    let name = tool.get("name").and_then(Value::as_str).unwrap_or_default();
    let part = |field, texts, finding, is_shared, steps| Part {
        place: Place::Item(List::Tools, item, field),
        code: WarningCode::ToolsIgnored,
        texts,
        finding,
        is_shared,
        group: Group::Tools,
        steps,
    };
    // Messages, too, contain names.
    let description = tool.get("description").and_then(long_start);
    let text = Texts::One(description.unwrap_or(name));
    if !text.has_words() {
        return Vec::new();
    }
    let mut parts = vec![part(None, text, declared, description.is_none(), Vec::new())];
    for (number, (steps, texts)) in schema::parts(tool).into_iter().enumerate() {
        let is_top = matches!(steps[..], [_, Step::Key(PROPERTIES)]);
        let are_names = steps.last() == Some(&Step::Key(PROPERTIES));
        if is_top && facts.tools.parameters == Finding::Shown {
            continue;
        }
        let finding = if is_top || !are_names { facts.tools.parameters } else { Finding::Unknown };
        parts.push(part(Some(number), texts, finding, are_names, steps));
    }
    parts
}

/// Returns a document and its other texts at any depth, without its number.
fn of_document<'c>(item: usize, document: &'c Value, facts: &TemplateFacts) -> Vec<Part<'c>> {
    let part = |field, texts, finding, steps| Part {
        place: Place::Item(List::Documents, item, field),
        code: WarningCode::DocumentsIgnored,
        texts,
        finding,
        is_shared: false,
        group: Group::Documents,
        steps,
    };
    let words = words(document);
    let whole = words.map(|text| part(None, Texts::One(text), facts.documents, Vec::new()));
    let mut fields = Vec::new();
    let given = document.as_object().into_iter().flatten();
    for (key, value) in given.filter(|(key, _)| !DOCUMENT_NUMBERS.contains(&key.as_str())) {
        texts_within(value, &mut vec![Step::Key(key)], &mut fields);
    }
    let others = fields.into_iter().enumerate().filter_map(|(number, (steps, mut texts))| {
        texts.retain(|text| Some(*text) != words);
        (!texts.is_empty()).then(|| part(Some(number), Texts::Many(texts), Finding::Unknown, steps))
    });
    whole.into_iter().chain(others).filter(|part| part.texts.has_words()).collect()
}

/// Adds the texts in a value, each with the way to it. The texts of a list are one part.
fn texts_within<'c>(value: &'c Value, way: &mut Vec<Step<'c>>, found: &mut Vec<(Vec<Step<'c>>, Vec<&'c str>)>) {
    let mut within = |step, value| {
        way.push(step);
        texts_within(value, way, found);
        way.pop();
    };
    match value {
        Value::String(text) => found.push((way.clone(), vec![text])),
        Value::Object(fields) => fields.iter().for_each(|(key, value)| within(Step::Key(key), value)),
        Value::Array(items) => {
            let others = items.iter().enumerate().filter(|(_, item)| !item.is_string());
            others.for_each(|(index, item)| within(Step::Index(index), item));
            let texts: Vec<_> = items.iter().filter_map(Value::as_str).collect();
            found.extend(Some(texts).filter(|texts| !texts.is_empty()).map(|texts| (way.clone(), texts)));
        }
        _ => {}
    }
}

/// The keys of a document's number. Few templates show it.
const DOCUMENT_NUMBERS: [&str; 3] = ["id", "doc_id", "document_id"];

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

/// Returns each call of a message, and its name.
fn calls(message: &Value) -> impl Iterator<Item = (usize, &Value, &str)> {
    let calls = message.get("tool_calls").and_then(Value::as_array).into_iter().flatten().enumerate();
    calls.filter_map(|(i, call)| Some((i, call, function(call).get("name")?.as_str()?)))
}

/// Returns the arguments of a call, and the way to them.
fn arguments(call: &Value) -> (&[Step<'static>], Option<&Value>) {
    const WAY: [Step<'static>; 2] = [Step::Key("function"), Step::Key("arguments")];
    let way: &[_] = if call.get("function").is_some() { &WAY } else { &WAY[1..] };
    (way, function(call).get("arguments"))
}

/// Returns words of each text in arguments.
fn words_of(value: &Value) -> Vec<&str> {
    leaves(value).into_iter().map(last_plain_words).filter(|text| !text.trim().is_empty()).collect()
}

/// Returns the numbers in an argument, as the request spells them.
fn numbers(value: &Value) -> Vec<&str> {
    match value {
        Value::Number(number) => vec![number.as_str()],
        Value::Array(items) => items.iter().flat_map(numbers).collect(),
        Value::Object(fields) => fields.values().flat_map(numbers).collect(),
        _ => Vec::new(),
    }
}

fn items(list: &Option<Value>) -> impl Iterator<Item = (usize, &Value)> {
    list.as_ref().and_then(Value::as_array).into_iter().flatten().enumerate()
}

/// Returns the function of a tool or call. `{"function": …}` around it is optional.
fn function(value: &Value) -> &Value {
    value.get("function").unwrap_or(value)
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

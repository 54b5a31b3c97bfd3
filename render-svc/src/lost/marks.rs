//! Marks in the parts of a conversation, which show whether a prompt contains a part that a template
//! changes.

use std::collections::HashSet;
use std::ops::Range;

use serde_json::{Number, Value, json};
use tandem_common::field::Steps;

use super::part::{List, Part, Place, Within};
use super::parts::section;
use super::pieces::{LONG_PIECE_BYTES, disguised, disguised_at, pieces};
use super::steps;
use crate::conversation::{Conversation, find};
use crate::probes::{REASONING_END, REASONING_START};

/// The start of every mark. A mark consists of lower-case letters, so that templates keep it whole, and
/// none is part of another one.
const PREFIX: &str = "qzmark";
/// The letters of a mark's number.
const DIGITS: usize = 5;
/// The most pieces at either end of a text that get marks. One in the middle gets another.
const MAX_PIECES: usize = 8;

/// A conversation with marks in some of its parts.
#[derive(Debug)]
pub(super) struct Marked {
    pub conversation: Conversation,
    of_parts: Vec<MarkNumbers>,
    /// The byte of its text at which each mark is.
    bytes: Vec<usize>,
}

/// The numbers of a part's marks.
#[derive(Debug, Default)]
struct MarkNumbers {
    /// The mark of a name. A template may show a call by its identifier, without its name.
    name: Option<usize>,
    others: Range<usize>,
    /// True if the part is the name, and the other mark only shows that its call is in the prompt.
    is_name: bool,
}

impl MarkNumbers {
    /// Returns the marks that are found, of marks at these bytes. None without marks.
    fn found(&self, is_found: impl Fn(usize) -> bool, bytes: &[usize]) -> Option<FoundMarks> {
        if self.is_name {
            let is_lost = !is_found(self.name?) && is_found(self.others.clone().next()?);
            return Some(if is_lost { FoundMarks::None } else { FoundMarks::All });
        }
        let lost: Vec<_> = self.others.clone().filter(|number| !is_found(*number)).collect();
        match (self.others.len() - lost.len(), self.name.map(is_found)) {
            (_, None) if self.others.is_empty() => None,
            (0, None | Some(false)) => Some(FoundMarks::None),
            _ if lost.is_empty() => Some(FoundMarks::All),
            _ => Some(FoundMarks::AllBut(lost.into_iter().map(|number| bytes[number]).collect())),
        }
    }
}

/// The marks of a part that a prompt contains, fewest first.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum FoundMarks {
    None,
    /// All but the marks at these bytes of the part's text.
    AllBut(Vec<usize>),
    All,
}

/// What becomes of the names of tools and calls.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Names {
    /// They are marked.
    Marked,
    /// They stay, and other parts of tools and calls are marked.
    Kept,
}

/// What becomes of a part.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Change {
    /// It gets marks.
    Marks(Names),
    /// Its letters and digits become others. Its size stays.
    Disguise,
    /// So do those of its text at this byte.
    DisguiseAt(usize),
    /// Its text is taken out.
    Removal,
}

/// Returns the conversation with other letters and digits in these parts, of each at a byte of its text, or
/// everywhere. Names of properties stay.
pub(super) fn with_disguised(conversation: &Conversation, parts: &[(&Part<'_>, Option<usize>)]) -> Conversation {
    let mut marker = Marker::new(conversation, Change::Disguise);
    for (part, byte) in parts {
        marker.change = byte.map_or(Change::Disguise, Change::DisguiseAt);
        marker.mark(part);
    }
    marker.conversation
}

/// Returns the conversation without these parts: texts become empty, and calls and their values are taken out.
/// Precondition: the parts are sorted by their places.
pub(super) fn without(conversation: &Conversation, parts: &[&Part<'_>]) -> Conversation {
    let mut marker = Marker::new(conversation, Change::Removal);
    parts.iter().rev().for_each(|part| marker.mark(part));
    marker.conversation
}

impl Marked {
    /// Returns the conversation with marks in these parts. A text keeps its words beside them, so that a
    /// template treats it as before.
    pub(super) fn new(conversation: &Conversation, parts: &[&Part<'_>], names: Names) -> Self {
        let mut marker = Marker::new(conversation, Change::Marks(names));
        let mut of_parts = Vec::with_capacity(parts.len());
        for part in parts {
            let start = marker.bytes.len();
            marker.mark(part);
            let name = marker.name.take();
            let others = name.map_or(start, |name| name + 1)..marker.bytes.len();
            of_parts.push(MarkNumbers { name, others, is_name: part.call_of_name().is_some() });
        }
        Self { conversation: marker.conversation, of_parts, bytes: marker.bytes }
    }

    /// Returns the marks of each part that are in a prompt of this conversation. None for a part without
    /// marks.
    pub(super) fn found(&self, prompt: &str) -> Vec<Option<FoundMarks>> {
        // A template may write texts in upper case.
        let prompt = &*prompt.to_lowercase();
        let all = |prefix: &'static str, size: usize| {
            prompt.match_indices(prefix).filter_map(move |(at, _)| prompt.get(at..at + size))
        };
        let found: HashSet<&str> = all(PREFIX, MARK_BYTES).chain(all(NUMBER_PREFIX, NUMBER_DIGITS)).collect();
        let is_found =
            |number: usize| found.contains(&*mark(number)) || found.contains(&*number_mark(number).to_string());
        self.of_parts.iter().map(|numbers| numbers.found(is_found, &self.bytes)).collect()
    }
}

const MARK_BYTES: usize = PREFIX.len() + DIGITS + 1;

/// Returns the mark of this number.
fn mark(number: usize) -> String {
    let digits = format!("{number:0DIGITS$}");
    let letters: String = digits.bytes().map(|digit| char::from(b'a' + (digit - b'0'))).collect();
    format!("{PREFIX}{letters}x")
}

/// The first digits of every mark that is a number.
const NUMBER_PREFIX: &str = "7315026489";
/// The first of these marks.
const FIRST_NUMBER: usize = 731_502_648_900_000;
const NUMBER_DIGITS: usize = NUMBER_PREFIX.len() + DIGITS;

/// Returns the mark of this number that is a number itself.
fn number_mark(number: usize) -> Value {
    (FIRST_NUMBER + number).into()
}

/// Marks parts of a conversation.
struct Marker {
    conversation: Conversation,
    /// The byte of its text at which each mark is. Its number is its index.
    bytes: Vec<usize>,
    change: Change,
    /// The number of the mark of the part's name, which is its first one.
    name: Option<usize>,
}

impl Marker {
    fn new(conversation: &Conversation, change: Change) -> Self {
        Self { conversation: conversation.clone(), bytes: Vec::new(), change, name: None }
    }

    fn mark(&mut self, part: &Part<'_>) {
        match part.place {
            Place::Message(at, within) => self.mark_within(at, within, &part.steps),
            Place::Item(List::Tools, item, _) => self.mark_tool(item, &part.steps),
            Place::Item(List::Documents, item, Some(_)) => {
                let mut documents = self.conversation.documents.take();
                let document = documents.as_mut().and_then(|documents| documents.get_mut(item));
                let field = document.and_then(|document| find(document, &part.steps));
                field.into_iter().for_each(|field| self.mark_field(field));
                self.conversation.documents = documents;
            }
            Place::Item(List::Documents, item, None) => {
                let texts = part.texts.all();
                let marked = self.marked_text(texts.first().copied().unwrap_or_default(), 0);
                let documents = self.conversation.documents.as_mut();
                let document = documents.and_then(|documents| documents.get_mut(item)).into_iter();
                document.for_each(|document| _ = mark_leaves(document, &marked, |text| texts.contains(&text)));
            }
        }
    }

    /// Marks the name of a tool or a call, unless names are kept.
    fn mark_name(&mut self, named: &mut Value) {
        match self.change {
            Change::Marks(Names::Marked) => {
                self.name = Some(self.bytes.len());
                let marked = named.get("name").and_then(Value::as_str).filter(|name| name.starts_with(PREFIX));
                named["name"] = format!("{}{}", marked.unwrap_or_default(), self.next_mark()).into();
            }
            Change::Marks(Names::Kept) | Change::DisguiseAt(_) | Change::Removal => {}
            Change::Disguise => named.get_mut("name").into_iter().for_each(disguise),
        }
    }

    /// Marks a value that is a name or the like.
    fn mark_value(&mut self, value: &mut Value) {
        match self.change {
            Change::Marks(_) => *value = self.next_mark().into(),
            Change::Disguise | Change::DisguiseAt(_) => disguise(value),
            Change::Removal => *value = "".into(),
        }
    }

    fn next_mark(&mut self) -> String {
        self.mark_at(0)
    }

    /// Returns the next mark, for this byte of a text.
    fn mark_at(&mut self, byte: usize) -> String {
        self.bytes.push(byte);
        mark(self.bytes.len() - 1)
    }

    fn mark_within(&mut self, at: usize, within: Within, steps: &Steps<'_>) {
        let Some(mut message) = self.conversation.messages.get_mut(at).map(Value::take) else { return };
        match within {
            Within::Content => self.mark_content(&mut message),
            Within::Section => {
                let text = message.get("content").and_then(Value::as_str).unwrap_or_default();
                if let Some((section, rest)) = section(&message, text) {
                    let start = text.len() - rest.len() - REASONING_END.len() - section.len();
                    let before = if self.is_marking() { REASONING_START } else { &text[..start] };
                    let section = self.marked_text(section, start);
                    message["content"] = format!("{before}{section}{REASONING_END}{rest}").into();
                }
            }
            Within::Block(block) => {
                let text = message.get_mut("content").and_then(|content| content.get_mut(block)?.get_mut("text"));
                text.into_iter().for_each(|text| self.mark_text(text));
            }
            Within::Name => self.mark_value(&mut message["name"]),
            Within::Reasoning(key) => message.get_mut(key).into_iter().for_each(|text| self.mark_text(text)),
            Within::Call(call, None) if self.change == Change::Removal => {
                let calls = message.get_mut("tool_calls").and_then(Value::as_array_mut);
                let has_others = calls.is_some_and(|calls| {
                    calls.remove(call);
                    !calls.is_empty()
                });
                if !has_others && let Some(fields) = message.as_object_mut() {
                    fields.shift_remove("tool_calls");
                }
            }
            Within::Call(call, Some(_)) if self.change == Change::Removal => {
                let call = message.get_mut("tool_calls").and_then(|calls| calls.get_mut(call));
                call.into_iter().for_each(|call| steps::remove(call, steps));
            }
            Within::Call(call, argument) => {
                let call = message.get_mut("tool_calls").and_then(|calls| calls.get_mut(call));
                match argument {
                    None => call.and_then(function_of).into_iter().for_each(|call| self.mark_call(call)),
                    Some(_) => {
                        let argument = call.and_then(|call| find(call, steps));
                        argument.into_iter().for_each(|argument| self.mark_argument(argument));
                    }
                }
            }
            Within::CallName(call) => {
                let call = message.get_mut("tool_calls").and_then(|calls| function_of(calls.get_mut(call)?));
                call.into_iter().for_each(|call| self.mark_called_name(call));
            }
            Within::Value(_) => {
                let value = find(&mut message, steps);
                value.into_iter().for_each(|value| self.mark_argument(value));
            }
            Within::FunctionCall => {
                let name = message.get_mut("function_call").and_then(|call| call.get_mut("name"));
                name.into_iter().for_each(|name| self.mark_value(name));
            }
        }
        self.conversation.messages[at] = message;
    }

    /// Marks a message's text, without the reasoning in it.
    fn mark_content(&mut self, message: &mut Value) {
        let text = message.get("content").and_then(Value::as_str).unwrap_or_default();
        let text = match section(message, text) {
            Some((section, rest)) => {
                let start = text.len() - rest.len();
                let rest = self.marked_text(rest, start);
                match self.is_marking() {
                    true => format!("{REASONING_START}{section}{REASONING_END}\n\n{rest}"),
                    false => format!("{}{rest}", &text[..start]),
                }
            }
            None => self.marked_text(text, 0),
        };
        message["content"] = text.into();
    }

    fn is_marking(&self) -> bool {
        matches!(self.change, Change::Marks(_))
    }

    fn mark_text(&mut self, text: &mut Value) {
        *text = self.marked_text(text.as_str().unwrap_or_default(), 0).into();
    }

    /// Returns a text with marks as words at its start and end, and in its pieces. It starts at this byte of
    /// a part's text.
    fn marked_text(&mut self, text: &str, start: usize) -> String {
        match self.change {
            Change::Marks(_) => {}
            Change::Disguise => return disguised(text),
            Change::DisguiseAt(byte) => return disguised_at(text, byte.saturating_sub(start)),
            Change::Removal => return String::new(),
        }
        let pieces = pieces(text);
        let (mut marked, mut at) = (String::with_capacity(text.len() + 2 * MARK_BYTES), 0);
        for (number, piece) in pieces.iter().enumerate() {
            let is_near_end = number < MAX_PIECES || number + MAX_PIECES >= pieces.len();
            if is_near_end || number == pieces.len() / 2 {
                marked += &text[at..piece.start];
                at = piece.start;
                marked += &format!("{} ", self.mark_at(start + at));
            }
        }
        let end = pieces.last().map_or(at, |piece| piece.end);
        marked += &text[at..end];
        // The mark is behind the last byte of the text.
        marked += &format!(" {}", self.mark_at(start + end.saturating_sub(1)));
        marked + &text[end..]
    }

    /// Marks the name of a call, and the texts in its arguments by another mark. Arguments without texts
    /// get one.
    fn mark_call(&mut self, call: &mut Value) {
        self.mark_name(call);
        self.change_arguments(call, |marker, arguments| {
            let is_filled = arguments.as_object().is_some_and(|fields| !fields.is_empty());
            if !marker.is_marking() {
                marker.mark_argument(arguments);
            } else if is_filled {
                let mark = marker.next_mark();
                if !marker.mark_argument_texts(arguments, &mark) {
                    arguments[&mark] = mark.as_str().into();
                }
            }
        });
    }

    /// Marks the name of a call, and adds an argument with another mark, which shows that the call is in the
    /// prompt.
    fn mark_called_name(&mut self, call: &mut Value) {
        self.mark_name(call);
        if self.name.is_some() {
            self.change_arguments(call, |marker, arguments| {
                let mark = marker.next_mark();
                arguments[&mark] = mark.as_str().into();
            });
        }
    }

    /// Changes the arguments of a call if they are an object or the JSON text of one.
    fn change_arguments(&mut self, call: &mut Value, change: impl FnOnce(&mut Self, &mut Value)) {
        let Some(given) = call.get_mut("arguments") else { return };
        let text = given.as_str().map(|text| serde_json::from_str::<Value>(text).unwrap_or_default());
        let is_text = text.is_some();
        let mut arguments = text.unwrap_or_else(|| given.clone());
        if arguments.is_object() {
            let before = arguments.clone();
            change(self, &mut arguments);
            if arguments != before {
                *given = if is_text { arguments.to_string().into() } else { arguments };
            }
        }
    }

    /// Marks the texts in an argument, or its numbers if it has no text.
    fn mark_argument(&mut self, argument: &mut Value) {
        match self.change {
            Change::Marks(_) => {
                let number = number_mark(self.bytes.len());
                let mark = self.next_mark();
                if !self.mark_argument_texts(argument, &mark) {
                    replace_numbers(argument, &|_| number.clone());
                }
            }
            Change::Disguise => disguise(argument),
            Change::Removal => *argument = "".into(),
            Change::DisguiseAt(byte) => _ = replace_leaves(argument, &mut |text| Some(disguised_at(text, byte))),
        }
    }

    /// Replaces the texts in arguments by a mark. A long one stays, and gets marks in its pieces,
    /// so that a cut is seen. Returns true if there is a text.
    fn mark_argument_texts(&mut self, arguments: &mut Value, mark: &str) -> bool {
        replace_leaves(arguments, &mut |text| match text.len() < LONG_PIECE_BYTES {
            true => Some(mark.to_owned()),
            false => Some(format!("{mark} {}", self.marked_text(text, 0))),
        })
    }

    /// Marks a tool, or the field of it to which these steps lead.
    fn mark_tool(&mut self, item: usize, steps: &Steps<'_>) {
        let mut tools = self.conversation.tools.take();
        if let Some(tool) = tools.as_mut().and_then(|tools| function_of(tools.get_mut(item)?)) {
            if steps.is_empty() {
                self.mark_name_and_description(tool);
            } else if let Some(field) = find(tool, steps) {
                self.mark_field(field);
            }
        }
        self.conversation.tools = tools;
    }

    /// Marks a text, a number, a list of values, or an object of properties, which gets one more.
    fn mark_field(&mut self, field: &mut Value) {
        match (field, self.change) {
            (field @ Value::String(_), _) => self.mark_text(field),
            (Value::Object(properties), Change::Marks(_)) => {
                properties.insert(self.next_mark(), json!({"type": "string", "description": "Any text"}));
            }
            (Value::Object(_), _) => {}
            (field, Change::Disguise | Change::DisguiseAt(_)) => disguise(field),
            (field, Change::Removal) => *field = Value::Null,
            (number @ Value::Number(_), Change::Marks(_)) => {
                *number = number_mark(self.bytes.len());
                self.next_mark();
            }
            (values, Change::Marks(_)) => {
                let mark = self.next_mark();
                mark_leaves(values, &mark, |_| true);
            }
        }
    }

    fn mark_name_and_description(&mut self, tool: &mut Value) {
        self.mark_name(tool);
        let is_text = |text: &Value| text.as_str().is_some_and(|text| !text.trim().is_empty());
        let description = tool.get_mut("description").filter(|text| is_text(text));
        description.into_iter().for_each(|description| self.mark_text(description));
    }
}

/// Returns the function of a tool or call. `{"function": …}` around it is optional.
fn function_of(value: &mut Value) -> Option<&mut Value> {
    let function = if value.get("function").is_some() { value.get_mut("function") } else { Some(value) };
    function.filter(|function| function.is_object())
}

/// Replaces the texts in a value by a mark. Returns true if there is one.
fn mark_leaves(value: &mut Value, mark: &str, is_marked: impl Fn(&str) -> bool) -> bool {
    replace_leaves(value, &mut |text| is_marked(text).then(|| mark.to_owned()))
}

/// Replaces texts in a value. Returns true if one is replaced.
fn replace_leaves(value: &mut Value, replace: &mut impl FnMut(&str) -> Option<String>) -> bool {
    let mut any = |found: bool, value: &mut Value| replace_leaves(value, replace) || found;
    match value {
        Value::String(text) => replace(text).map(|marked| *text = marked).is_some(),
        Value::Array(items) => items.iter_mut().fold(false, any),
        Value::Object(fields) => fields.values_mut().fold(false, &mut any),
        _ => false,
    }
}

/// Replaces the numbers in a value.
fn replace_numbers(value: &mut Value, replace: &impl Fn(&Number) -> Value) {
    match value {
        Value::Number(number) => *value = replace(number),
        Value::Array(items) => items.iter_mut().for_each(|item| replace_numbers(item, replace)),
        Value::Object(fields) => fields.values_mut().for_each(|field| replace_numbers(field, replace)),
        _ => {}
    }
}

/// Replaces the letters and digits in the texts of a value, and the digits of its numbers.
fn disguise(value: &mut Value) {
    replace_leaves(value, &mut |text| Some(disguised(text)));
    replace_numbers(value, &|number| {
        let other = |c: char| match c {
            '7' => '3',
            c if c.is_ascii_digit() => '7',
            c => c,
        };
        let digits: String = number.as_str().chars().map(other).collect();
        serde_json::from_str(&digits).unwrap_or_else(|_| number.clone().into())
    });
}

//! Marks in the parts of a conversation, which show whether a prompt contains a part that a template
//! changes.

use std::collections::HashSet;
use std::ops::Range;

use serde_json::{Value, json};

use super::parts::{List, Part, Place, Within, section};
use super::schema::Step;
use crate::conversation::Conversation;
use crate::probes::{REASONING_END, REASONING_START};

/// The start of every mark. A mark consists of lower-case letters, so that templates keep it whole, and
/// none is part of another one.
const PREFIX: &str = "qzmark";
/// The letters of a mark's number.
const DIGITS: usize = 5;
/// The most pieces at either end of a text that get marks. One in the middle gets another.
const MAX_PIECES: usize = 8;
/// The size from which a piece is divided, so that a cut in its middle is seen.
const LONG_PIECE_BYTES: usize = 64;
/// The longest tag, such as `</think>`, at which a template may cut a text.
const MAX_TAG_BYTES: usize = 64;

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
}

impl MarkNumbers {
    /// Returns the marks that are found, of marks at these bytes. None without marks.
    fn found(&self, is_found: impl Fn(usize) -> bool, bytes: &[usize]) -> Option<FoundMarks> {
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

impl Marked {
    /// Returns the conversation with marks in these parts. A text keeps its words beside them, so that a
    /// template treats it as before.
    pub(super) fn new(conversation: &Conversation, parts: &[&Part<'_>], names: Names) -> Self {
        let mut marker = Marker { conversation: conversation.clone(), bytes: Vec::new(), names, name: None };
        let mut of_parts = Vec::with_capacity(parts.len());
        for part in parts {
            let start = marker.bytes.len();
            marker.mark(part);
            let name = marker.name.take();
            of_parts.push(MarkNumbers { name, others: name.map_or(start, |name| name + 1)..marker.bytes.len() });
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
    names: Names,
    /// The number of the mark of the part's name, which is its first one.
    name: Option<usize>,
}

impl Marker {
    fn mark(&mut self, part: &Part<'_>) {
        match part.place {
            Place::Message(at, within) => self.mark_within(at, within, &part.steps),
            Place::Item(List::Tools, item, _) => self.mark_tool(item, &part.steps),
            Place::Item(List::Documents, item, Some(_)) => {
                let mut documents = self.conversation.documents.take();
                let document = documents.as_mut().and_then(|documents| documents.get_mut(item));
                let field = document.and_then(|document| at_steps(document, &part.steps));
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
        if self.names == Names::Marked {
            self.name = Some(self.bytes.len());
            named["name"] = self.next_mark().into();
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

    fn mark_within(&mut self, at: usize, within: Within, steps: &[Step<'_>]) {
        let Some(mut message) = self.conversation.messages.get_mut(at).map(Value::take) else { return };
        match within {
            Within::Content => self.mark_content(&mut message),
            Within::Section => {
                let text = message.get("content").and_then(Value::as_str).unwrap_or_default();
                if let Some((section, rest)) = section(&message, text) {
                    let start = text.len() - rest.len() - REASONING_END.len() - section.len();
                    let section = self.marked_text(section, start);
                    message["content"] = format!("{REASONING_START}{section}{REASONING_END}{rest}").into();
                }
            }
            Within::Block(block) => {
                let text = message.get_mut("content").and_then(|content| content.get_mut(block)?.get_mut("text"));
                text.into_iter().for_each(|text| self.mark_text(text));
            }
            Within::Name => message["name"] = self.next_mark().into(),
            Within::Reasoning(key) => message.get_mut(key).into_iter().for_each(|text| self.mark_text(text)),
            Within::Call(call, argument) => {
                let call = message.get_mut("tool_calls").and_then(|calls| calls.get_mut(call));
                match argument {
                    None => call.and_then(function_of).into_iter().for_each(|call| self.mark_call(call)),
                    Some(_) => {
                        let argument = call.and_then(|call| at_steps(call, steps));
                        argument.into_iter().for_each(|argument| self.mark_argument(argument));
                    }
                }
            }
            Within::FunctionCall => {
                let mark = self.next_mark();
                if let Some(name) = message.get_mut("function_call").and_then(|call| call.get_mut("name")) {
                    *name = mark.into();
                }
            }
        }
        self.conversation.messages[at] = message;
    }

    /// Marks a message's text, without the reasoning in it.
    fn mark_content(&mut self, message: &mut Value) {
        let text = message.get("content").and_then(Value::as_str).unwrap_or_default();
        let text = match section(message, text) {
            Some((section, rest)) => {
                let rest = self.marked_text(rest, text.len() - rest.len());
                format!("{REASONING_START}{section}{REASONING_END}\n\n{rest}")
            }
            None => self.marked_text(text, 0),
        };
        message["content"] = text.into();
    }

    fn mark_text(&mut self, text: &mut Value) {
        *text = self.marked_text(text.as_str().unwrap_or_default(), 0).into();
    }

    /// Returns a text with marks as words at its start and end, and in its pieces. It starts at this byte of
    /// a part's text.
    fn marked_text(&mut self, text: &str, start: usize) -> String {
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
        let Some(given) = call.get_mut("arguments") else { return };
        let text = given.as_str().map(|text| serde_json::from_str(text).unwrap_or_default());
        let mut arguments = text.clone().unwrap_or_else(|| given.take());
        let is_filled = arguments.as_object().is_some_and(|fields| !fields.is_empty());
        if is_filled {
            let mark = self.next_mark();
            if !self.mark_argument_texts(&mut arguments, &mark) {
                arguments[&mark] = mark.as_str().into();
            }
        }
        match text {
            Some(_) if is_filled => *given = arguments.to_string().into(),
            Some(_) => {}
            None => *given = arguments,
        }
    }

    /// Marks the texts in an argument, or its numbers if it has no text.
    fn mark_argument(&mut self, argument: &mut Value) {
        let number = number_mark(self.bytes.len());
        let mark = self.next_mark();
        if !self.mark_argument_texts(argument, &mark) {
            mark_numbers(argument, &number);
        }
    }

    /// Replaces the texts in arguments by a mark. A long one stays between it and another mark, so that a
    /// cut is seen. Returns true if there is a text.
    fn mark_argument_texts(&mut self, arguments: &mut Value, mark: &str) -> bool {
        replace_leaves(arguments, &mut |text| match text.len() < LONG_PIECE_BYTES {
            true => Some(mark.to_owned()),
            false => Some(format!("{mark} {text} {}", self.next_mark())),
        })
    }

    /// Marks a tool, or the field of it to which these steps lead.
    fn mark_tool(&mut self, item: usize, steps: &[Step<'_>]) {
        let mut tools = self.conversation.tools.take();
        if let Some(tool) = tools.as_mut().and_then(|tools| function_of(tools.get_mut(item)?)) {
            if steps.is_empty() {
                self.mark_name_and_description(tool);
            } else if let Some(field) = at_steps(tool, steps) {
                self.mark_field(field);
            }
        }
        self.conversation.tools = tools;
    }

    /// Marks a description, a list of values, or an object of properties, which gets one more.
    fn mark_field(&mut self, field: &mut Value) {
        match field {
            Value::String(_) => self.mark_text(field),
            Value::Object(properties) => {
                let mark = self.next_mark();
                properties.insert(mark.clone(), json!({"type": "string", "description": mark}));
            }
            values => {
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

/// Returns the pieces of a text between tags and the ends of lines, each from its first to its last letter or
/// digit. A long one is two pieces. A text without any is one piece.
fn pieces(text: &str) -> Vec<Range<usize>> {
    let (mut pieces, mut start) = (Vec::new(), 0);
    let mut add = |range: Range<usize>| {
        let piece = &text[range.clone()];
        let last = piece.char_indices().rfind(|(_, c)| c.is_alphanumeric()).map(|(at, c)| at + c.len_utf8());
        let first = piece.find(char::is_alphanumeric);
        if let Some((first, last)) = first.zip(last) {
            let (first, last) = (range.start + first, range.start + last);
            let second = second_half(&text[first..last]).map(|half| first + half);
            pieces.push(first..second.unwrap_or(last));
            pieces.extend(second.map(|second| second..last));
        }
    };
    for (at, open) in text.char_indices().filter(|(_, c)| matches!(c, '<' | '[' | '\n')) {
        if at < start {
            continue;
        }
        if open == '\n' {
            add(start..at);
            start = at;
        } else if let Some(end) = tag_end(&text[at..], open) {
            add(start..at);
            start = at + end;
        }
    }
    add(start..text.len());
    if pieces.is_empty() {
        pieces.push(0..text.len());
    }
    pieces
}

/// Returns the start of the second half of a long piece: of a word.
fn second_half(piece: &str) -> Option<usize> {
    let middle = piece.floor_char_boundary(piece.len() / 2);
    let space = middle + piece[middle..].find(char::is_whitespace).filter(|_| piece.len() >= LONG_PIECE_BYTES)?;
    Some(space + piece[space..].find(char::is_alphanumeric)?)
}

/// Returns the size of the tag at the start of a text.
fn tag_end(text: &str, open: char) -> Option<usize> {
    let close = if open == '<' { '>' } else { ']' };
    let within = &text[..text.floor_char_boundary(MAX_TAG_BYTES)];
    let end = within.find(close)?;
    (!within[..end].contains(char::is_whitespace)).then_some(end + 1)
}

/// Returns the function of a tool or call. `{"function": …}` around it is optional.
fn function_of(value: &mut Value) -> Option<&mut Value> {
    let function = if value.get("function").is_some() { value.get_mut("function") } else { Some(value) };
    function.filter(|function| function.is_object())
}

/// Returns the value to which steps lead.
fn at_steps<'v>(value: &'v mut Value, steps: &[Step<'_>]) -> Option<&'v mut Value> {
    steps.iter().try_fold(value, |value, step| match step {
        Step::Key(key) => value.get_mut(key),
        Step::Index(index) => value.get_mut(index),
    })
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

fn mark_numbers(value: &mut Value, mark: &Value) {
    match value {
        Value::Number(_) => *value = mark.clone(),
        Value::Array(items) => items.iter_mut().for_each(|item| mark_numbers(item, mark)),
        Value::Object(fields) => fields.values_mut().for_each(|field| mark_numbers(field, mark)),
        _ => {}
    }
}

//! Which control tokens in a prompt the caller has written, so that they can be read as nothing but their letters.
//!
//! The prompt alone does not tell. So the conversation is rendered once more with marks on the letters of whatever could become a
//! control token, and the control tokens of both renderings are paired. Templates do not see the marks; where one changes the
//! prompt all the same, in an operation that does see them, the prompt is still the first rendering, and if the two do not hold
//! the same control tokens in the same order, nothing is guessed.
//!
//! What transformers does for `sanitize_control_tokens` differs in three ways: there the prompt is the marked rendering, so marks
//! that a template separated from their token leave traces in it; the keys of objects are not marked; and a control token that a
//! template puts together from two texts is not found.

use std::iter;
use std::ops::Range;

use aho_corasick::{AhoCorasick, MatchKind};
use serde_json::Value;
use tandem_common::template::Marks;
use tandem_common::tokenizer::Tokenizer;

use crate::chat::{Conversation, Object};
use crate::error::Error;
use crate::models::Templates;

/// The control tokens of one model's prompts: its special tokens, and those other added tokens that its templates or its adapter
/// write. The rest of a vocabulary is text.
#[derive(Debug)]
pub struct ControlTokens {
    finder: AhoCorasick,
    /// Sorted.
    texts: Vec<String>,
    /// Read backwards, sorted.
    reversed: Vec<String>,
    /// Bytes of the longest.
    longest: usize,
}

/// A control token in a text.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Found {
    token: usize,
    range: Range<usize>,
}

impl ControlTokens {
    /// Those of a model with this tokenizer and these templates, whose adapter writes `markup`.
    ///
    /// # Errors
    /// They are too many to be searched for.
    pub fn new(tokenizer: &Tokenizer, templates: &Templates, markup: &[&str]) -> Result<Self, Error> {
        let is_written = |text: &str| {
            let in_templates = || templates.iter().any(|named| named.template.literal_text().contains(text));
            !text.trim().is_empty() && (markup.contains(&text) || in_templates())
        };
        let added = tokenizer.added_tokens().iter();
        let control = added.filter(|token| token.is_special || is_written(&token.text));
        let mut texts: Vec<String> = control.map(|token| token.text.clone()).filter(|text| !text.is_empty()).collect();
        texts.sort_unstable();
        let mut reversed: Vec<String> = texts.iter().map(|text| text.chars().rev().collect()).collect();
        reversed.sort_unstable();
        let finder = AhoCorasick::builder().match_kind(MatchKind::LeftmostLongest).build(&texts)?;
        let longest = texts.iter().map(String::len).max().unwrap_or(0);
        Ok(Self { finder, texts, reversed, longest })
    }

    /// The bytes of `text` that spell control tokens, in order.
    #[must_use]
    pub fn in_text(&self, text: &str) -> Vec<Range<usize>> {
        self.find(text).into_iter().map(|found| found.range).collect()
    }

    /// The bytes of `prompt` that spell control tokens and come from the conversation, in order. `render` must render as the prompt
    /// was rendered.
    ///
    /// # Errors
    /// [`Error::ControlTokensUnclear`].
    pub fn users(
        &self,
        prompt: &str,
        conversation: &Conversation,
        render: impl FnOnce(&Conversation, Marks) -> Result<String, Error>,
    ) -> Result<Vec<Range<usize>>, Error> {
        let marks = unused_marks(conversation).ok_or(Error::ControlTokensUnclear)?;
        let mut marking = Marking { tokens: self, marks, has_marked: false };
        let conversation = marking.conversation(conversation);
        if !marking.has_marked {
            return Ok(Vec::new());
        }
        let rendered = render(&conversation, marks).map_err(|_| Error::ControlTokensUnclear)?;
        let unmarked = Unmarked::of(&rendered, marks);
        let (found, paired) = (self.find(prompt), self.find(&unmarked.text));
        if !found.iter().map(|found| found.token).eq(paired.iter().map(|found| found.token)) {
            return Err(Error::ControlTokensUnclear);
        }
        let pairs = found.into_iter().zip(&paired);
        Ok(pairs.filter(|(_, paired)| unmarked.is_users(&paired.range)).map(|(found, _)| found.range).collect())
    }

    fn find(&self, text: &str) -> Vec<Found> {
        let found = self.finder.find_iter(text);
        found.map(|found| Found { token: found.pattern().as_usize(), range: found.range() }).collect()
    }

    /// The parts of `text` that are control tokens, or become one when something is joined to them or taken out beside them.
    fn parts(&self, text: &str) -> Vec<Range<usize>> {
        if self.are_escaped_in(text) {
            return iter::once(0..text.len()).collect();
        }
        let mut parts = Vec::new();
        let mut start = 0;
        for token in self.in_text(text) {
            parts.extend(self.ends(text, start..token.start));
            start = token.end;
            parts.push(token);
        }
        parts.extend(self.ends(text, start..text.len()));
        parts
    }

    /// Whether control tokens appear when the text is read as JSON, as adapters read arguments.
    fn are_escaped_in(&self, text: &str) -> bool {
        text.contains('\\') && self.in_text(&unescaped(text)).len() > self.in_text(text).len()
    }

    /// The ends of a part of `text` that could belong to a control token, in order.
    fn ends(&self, text: &str, part: Range<usize>) -> impl Iterator<Item = Range<usize>> {
        let free = &text[part.clone()];
        let head = self.head(free).map(|bytes| part.start..part.start + bytes);
        let tail = self.tail(free).map(|bytes| part.end - bytes..part.end);
        match (head, tail) {
            (Some(head), Some(tail)) if tail.start < head.end => [Some(head.start..tail.end), None],
            ends => ends.into(),
        }
        .into_iter()
        .flatten()
    }

    /// Bytes of the longest start of `text` that is the end of a control token.
    fn head(&self, text: &str) -> Option<usize> {
        let ends = text.char_indices().map(|(at, char)| at + char.len_utf8()).take_while(|&end| end < self.longest);
        let is_end = |end: &usize| is_proper_start(&self.reversed, &text[..*end].chars().rev().collect::<String>());
        ends.filter(is_end).last()
    }

    /// Bytes of the longest end of `text` that is the start of a control token.
    fn tail(&self, text: &str) -> Option<usize> {
        let starts = text.char_indices().rev().map(|(at, _)| at).take_while(|&at| text.len() - at < self.longest);
        let found = starts.filter(|&at| is_proper_start(&self.texts, &text[at..])).last()?;
        Some(text.len() - found)
    }
}

/// Whether one of the sorted texts starts with `start` and goes on.
fn is_proper_start(sorted: &[String], start: &str) -> bool {
    let at = sorted.partition_point(|text| text.as_str() <= start);
    sorted.get(at).is_some_and(|text| text.starts_with(start))
}

/// The text with what follows each backslash as JSON reads it, but for white space, which no control token needs.
fn unescaped(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut parts = text.split('\\');
    out.extend(parts.next());
    while let Some(part) = parts.next() {
        let code = part.strip_prefix('u').and_then(|hex| u32::from_str_radix(hex.get(..4)?, 16).ok());
        match code.and_then(char::from_u32) {
            Some(c) => out.extend([c.encode_utf8(&mut [0; 4]), &part[5..]]),
            // Two backslashes stand for one.
            None if part.is_empty() => out.extend(["\\", parts.next().unwrap_or_default()]),
            None => out.push_str(part),
        }
    }
    out
}

/// Marks letters in JSON values.
struct Marking<'a> {
    tokens: &'a ControlTokens,
    marks: Marks,
    has_marked: bool,
}

impl Marking<'_> {
    fn conversation(&mut self, conversation: &Conversation) -> Conversation {
        let Conversation { messages, tools, documents, template_args } = conversation;
        Conversation {
            messages: messages.iter().map(|message| self.value(message)).collect(),
            tools: tools.as_ref().map(|tools| self.value(tools)),
            documents: documents.as_ref().map(|documents| self.value(documents)),
            template_args: template_args.iter().map(|(name, value)| (name.clone(), self.value(value))).collect(),
        }
    }

    fn value(&mut self, value: &Value) -> Value {
        match value {
            Value::String(text) => Value::String(self.text(text)),
            Value::Array(items) => items.iter().map(|item| self.value(item)).collect(),
            Value::Object(object) => Value::Object(self.object(object)),
            other => other.clone(),
        }
    }

    fn object(&mut self, object: &Object) -> Object {
        object.iter().map(|(key, value)| (self.text(key), self.value(value))).collect()
    }

    fn text(&mut self, text: &str) -> String {
        let mut marked = String::with_capacity(text.len());
        let mut done = 0;
        for part in self.tokens.parts(text) {
            marked.push_str(&text[done..part.start]);
            marked.push_str(&self.marks.marked(&text[part.clone()]));
            done = part.end;
            self.has_marked = true;
        }
        marked.push_str(&text[done..]);
        marked
    }
}

/// A rendering whose marks were taken off.
#[derive(Debug, Default)]
struct Unmarked {
    text: String,
    /// The parts whose letters were marked, in order.
    parts: Vec<Range<usize>>,
}

impl Unmarked {
    fn of(rendered: &str, marks: Marks) -> Self {
        let mut unmarked = Self::default();
        for (is_marked, stretch) in marks.stretches(rendered) {
            let start = unmarked.text.len();
            unmarked.text.push_str(&marks.plain(stretch));
            if is_marked {
                unmarked.parts.push(start..unmarked.text.len());
            }
        }
        unmarked
    }

    /// Whether a control token here is the user's: letters of it were marked.
    fn is_users(&self, range: &Range<usize>) -> bool {
        let next = self.parts.partition_point(|part| part.end <= range.start);
        self.parts.get(next).is_some_and(|part| part.start < range.end)
    }
}

/// Marks whose marked letters stand nowhere in a conversation.
fn unused_marks(conversation: &Conversation) -> Option<Marks> {
    let Conversation { messages, tools, documents, template_args } = conversation;
    let values = || messages.iter().chain(tools).chain(documents).chain(template_args.values());
    Marks::ALL.into_iter().find(|&marks| !values().any(|value| are_in(marks, value)))
}

fn are_in(marks: Marks, value: &Value) -> bool {
    match value {
        Value::String(text) => marks.are_in(text),
        Value::Array(items) => items.iter().any(|item| are_in(marks, item)),
        Value::Object(object) => object.iter().any(|(key, value)| marks.are_in(key) || are_in(marks, value)),
        _ => false,
    }
}

//! Which control tokens in a prompt the caller has written, so that they can be read as nothing but their letters.
//!
//! The prompt alone does not tell. So the conversation is rendered once more with marks around whatever could become a control
//! token, and the control tokens of both renderings are paired. Marks can change what a template does, where it searches what
//! was sent for control tokens (as templates do that cut `<think>…</think>` out of an answer); the prompt is always the first
//! rendering, and where the two do not hold the same control tokens in the same order, nothing is guessed.
//!
//! What transformers does for `sanitize_control_tokens` differs in three ways: there the prompt is the marked rendering, so marks
//! that a template separated from their token leave traces in it; the keys of objects are not marked; and a control token that a
//! template puts together from two texts is not found.

use std::collections::HashSet;
use std::iter;
use std::ops::Range;

use aho_corasick::{AhoCorasick, MatchKind};
use serde_json::Value;
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
        render: impl FnOnce(&Conversation) -> Result<String, Error>,
    ) -> Result<Vec<Range<usize>>, Error> {
        let marks = Marks::unused_in(conversation).ok_or(Error::ControlTokensUnclear)?;
        let mut marking = Marking { tokens: self, marks: &marks, marked: HashSet::new() };
        let conversation = marking.conversation(conversation);
        if marking.marked.is_empty() {
            return Ok(Vec::new());
        }
        let rendered = render(&conversation).map_err(|_| Error::ControlTokensUnclear)?;
        let unmarked = marks.remove(&rendered, &marking.marked)?;
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

    /// The parts of `text` that are control tokens, or become one when something is joined to its start or end.
    fn parts(&self, text: &str) -> Vec<Range<usize>> {
        let mut parts = self.in_text(text);
        let free_until = parts.first().map_or(text.len(), |first| first.start);
        let free_from = parts.last().map_or(0, |last| last.end);
        let head = self.head(&text[..free_until]);
        let tail = self.tail(&text[free_from..]).map(|bytes| text.len() - bytes..text.len());
        match (head, tail) {
            (Some(head), Some(tail)) if tail.start < head => return iter::once(0..text.len()).collect(),
            (head, tail) => {
                parts.splice(0..0, head.map(|end| 0..end));
                parts.extend(tail);
            }
        }
        parts
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

/// Puts marks into JSON values.
struct Marking<'a> {
    tokens: &'a ControlTokens,
    marks: &'a Marks,
    /// Every text that was put between two marks.
    marked: HashSet<String>,
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
            marked.push(self.marks.start);
            marked.push_str(&text[part.clone()]);
            marked.push(self.marks.end);
            done = part.end;
            if !self.marked.contains(&text[part.clone()]) {
                self.marked.insert(text[part].to_owned());
            }
        }
        marked.push_str(&text[done..]);
        marked
    }
}

/// A rendering whose marks were taken out.
#[derive(Debug, Default)]
struct Unmarked {
    text: String,
    /// The parts that stood between two marks as they were put, in order.
    parts: Vec<Range<usize>>,
    /// Where a mark stood, in order.
    places: Vec<usize>,
}

impl Unmarked {
    /// Whether a control token here is the user's: it was marked, in whole or in part, or a mark has kept its letters apart.
    fn is_users(&self, range: &Range<usize>) -> bool {
        let next = self.parts.partition_point(|part| part.end <= range.start);
        let is_marked = self.parts.get(next).is_some_and(|part| part.start < range.end);
        let next = self.places.partition_point(|&place| place <= range.start);
        is_marked || self.places.get(next).is_some_and(|&place| place < range.end)
    }
}

/// Two characters that stand nowhere in a conversation, neither themselves nor as JSON and Python escape them.
#[derive(Debug)]
struct Marks {
    start: char,
    end: char,
}

impl Marks {
    /// Unicode's noncharacters and a private area: nothing that a text should hold, and no space to any template.
    fn unused_in(conversation: &Conversation) -> Option<Self> {
        let mut used = HashSet::new();
        let Conversation { messages, tools, documents, template_args } = conversation;
        let values = messages.iter().chain(tools).chain(documents).chain(template_args.values());
        values.for_each(|value| collect_candidates(value, &mut used));
        let mut unused = candidates().filter(|char| !used.contains(char));
        Some(Self { start: unused.next()?, end: unused.next()? })
    }

    /// Takes the marks out. `known` are the texts that were marked; a mark that was separated from its text marks a place only.
    fn remove(&self, marked: &str, known: &HashSet<String>) -> Result<Unmarked, Error> {
        let mut out = Unmarked::default();
        let (mut open, mut done) = (None, 0);
        for mark in self.finder()?.find_iter(marked) {
            out.text.push_str(&marked[done..mark.start()]);
            done = mark.end();
            let at = out.text.len();
            out.places.push(at);
            let is_start = mark.pattern().as_usize() % 2 == 0;
            match (is_start, open.take()) {
                (true, _) => open = Some(at),
                (false, Some(start)) if known.contains(&out.text[start..]) => out.parts.push(start..at),
                (false, _) => {}
            }
        }
        out.text.push_str(&marked[done..]);
        Ok(out)
    }

    /// Finds marks as they are, and as JSON and Python escape them. Start marks have even numbers.
    fn finder(&self) -> Result<AhoCorasick, Error> {
        let spellings = |mark: char| {
            let code = u32::from(mark);
            [mark.to_string(), format!("\\u{code:04x}"), format!("\\u{code:04X}")]
        };
        let patterns = spellings(self.start).into_iter().zip(spellings(self.end)).flat_map(|(start, end)| [start, end]);
        Ok(AhoCorasick::new(patterns)?)
    }
}

/// What marks are chosen from, all within four hexadecimal digits.
fn candidates() -> impl Iterator<Item = char> {
    ('\u{FDD0}'..='\u{FDEF}').chain('\u{E000}'..='\u{F8FF}')
}

/// The candidates that a conversation holds, as they are or as an escape of four hexadecimal digits.
fn collect_candidates(value: &Value, used: &mut HashSet<char>) {
    match value {
        Value::String(text) => add_candidates(text, used),
        Value::Array(items) => items.iter().for_each(|item| collect_candidates(item, used)),
        Value::Object(object) => object.iter().for_each(|(key, value)| {
            add_candidates(key, used);
            collect_candidates(value, used);
        }),
        _ => {}
    }
}

fn add_candidates(text: &str, used: &mut HashSet<char>) {
    used.extend(text.chars().filter(|char| matches!(char, '\u{FDD0}'..='\u{FDEF}' | '\u{E000}'..='\u{F8FF}')));
    let escapes = text.match_indices('u').filter_map(|(at, _)| text.get(at + 1..at + 5));
    used.extend(escapes.filter_map(|digits| char::from_u32(u32::from_str_radix(digits, 16).ok()?)));
}

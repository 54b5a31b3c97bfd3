//! Added tokens: those that text is searched for before the rest of it is encoded.

use std::ops::Range;

use aho_corasick::{AhoCorasick, MatchKind};

/// A token that becomes its id wherever its text stands, special or not.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AddedToken {
    /// Its id.
    pub id: u32,
    /// How it stands in text.
    pub text: String,
    /// Whether it is a control token, such as the end of a turn, and no text.
    pub is_special: bool,
}

/// A stretch of a text.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Part<'a> {
    Token(u32),
    Text(&'a str),
}

/// Cuts a text at its added tokens.
#[derive(Default)]
pub(super) struct Splitter {
    /// Searched for one after the other, each in the text that the one before has left.
    finders: Vec<Finder>,
}

struct Finder {
    automaton: AhoCorasick,
    rules: Vec<Rule>,
}

/// What happens where a token is found.
struct Rule {
    id: u32,
    /// White space before it belongs to it.
    lstrip: bool,
    /// White space after it belongs to it.
    rstrip: bool,
}

impl Splitter {
    /// Tokens that are to be found in raw text come first, then those that are to be found in normalized text, which must
    /// be the same as the raw one.
    pub(super) fn new(tokens: &[(u32, tokenizers::AddedToken)]) -> Result<Self, String> {
        let finders = [false, true].map(|normalized| {
            let wanted: Vec<_> = tokens.iter().filter(|(_, token)| token.normalized == normalized).collect();
            (!wanted.is_empty()).then(|| Finder::new(&wanted))
        });
        let finders = finders.into_iter().flatten().collect::<Result<_, _>>()?;
        Ok(Self { finders })
    }

    /// Every part of the text, in order. No part of text is empty.
    pub(super) fn parts<'a>(&self, text: &'a str) -> Vec<Part<'a>> {
        let mut parts = Vec::new();
        split(&self.finders, text, &mut parts);
        parts
    }
}

fn split<'a>(finders: &[Finder], text: &'a str, parts: &mut Vec<Part<'a>>) {
    match finders {
        _ if text.is_empty() => {}
        [] => parts.push(Part::Text(text)),
        [finder, others @ ..] => {
            let mut done = 0;
            for (id, range) in finder.matches(text) {
                if done < range.start {
                    split(others, &text[done..range.start], parts);
                }
                parts.push(Part::Token(id));
                done = range.end;
            }
            split(others, &text[done..], parts);
        }
    }
}

impl Finder {
    fn new(tokens: &[&(u32, tokenizers::AddedToken)]) -> Result<Self, String> {
        let texts = tokens.iter().map(|(_, token)| token.content.as_str());
        let automaton = AhoCorasick::builder().match_kind(MatchKind::LeftmostLongest).build(texts);
        let rules = tokens.iter().map(|(id, token)| Rule { id: *id, lstrip: token.lstrip, rstrip: token.rstrip });
        Ok(Self { automaton: automaton.map_err(|error| error.to_string())?, rules: rules.collect() })
    }

    /// Where tokens are, with the white space that they take along.
    fn matches(&self, text: &str) -> impl Iterator<Item = (u32, Range<usize>)> {
        let mut done = 0;
        self.automaton.find_iter(text).map(move |found| {
            let rule = &self.rules[found.pattern().as_usize()];
            let range = rule.widen(text, found.range(), done);
            done = range.end;
            (rule.id, range)
        })
    }
}

impl Rule {
    /// Never over what the token before has taken, up to `done`.
    fn widen(&self, text: &str, range: Range<usize>, done: usize) -> Range<usize> {
        let Range { mut start, mut end } = range;
        if self.lstrip && done < start {
            start = done + text[done..start].trim_end().len();
        }
        if self.rstrip {
            end = text.len() - text[end..].trim_start().len();
        }
        start..end
    }
}

//! Added tokens: the encoder finds them in text before it encodes the rest.

use std::ops::Range;

use aho_corasick::{AhoCorasick, MatchKind};

/// A token that becomes its id wherever its text occurs, special or not.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AddedToken {
    pub id: u32,
    pub text: String,
    /// True for a control token, such as the end of a turn, which is not text.
    pub is_special: bool,
}

/// Elements of HTML. Their tags are text unless a format writes them.
const HTML: &[&str] = &[
    "a",
    "b",
    "blockquote",
    "body",
    "br",
    "caption",
    "code",
    "div",
    "em",
    "h1",
    "h2",
    "h3",
    "h4",
    "h5",
    "h6",
    "head",
    "hr",
    "html",
    "i",
    "img",
    "li",
    "ol",
    "p",
    "pre",
    "s",
    "span",
    "strong",
    "sub",
    "sup",
    "table",
    "tbody",
    "td",
    "tfoot",
    "th",
    "thead",
    "tr",
    "u",
    "ul",
];

/// Brackets around control tokens.
const BRACKETS: &[char] = &['<', '>', '[', ']', '{', '}', '|', '｜'];

impl AddedToken {
    /// Returns true if the token is special, is written as control tokens are, or is written by a
    /// prompt's format. The rest of a vocabulary is text: white space, words, and tags of HTML.
    pub fn is_control(&self, is_written: impl Fn(&str) -> bool) -> bool {
        let text = self.text.as_str();
        self.is_special || (!text.trim().is_empty() && (looks_like_control(text) || is_written(text)))
    }
}

/// Returns true if an added token that is not special is written as control tokens are.
fn looks_like_control(text: &str) -> bool {
    text.contains(BRACKETS) && !is_html(text)
}

fn is_html(text: &str) -> bool {
    let tag = text.strip_prefix('<').and_then(|text| text.strip_suffix('>'));
    let element = tag.map(|tag| tag.strip_prefix('/').unwrap_or(tag));
    element.is_some_and(|element| HTML.contains(&element))
}

/// A part of a text.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Part<'a> {
    Token(u32),
    Text(&'a str),
}

/// Splits a text at its added tokens.
#[derive(Default)]
pub(super) struct Splitter {
    /// Applied in order, each to the text that the previous one left.
    finders: Vec<Finder>,
}

/// A splitter in two steps. Text between two tokens of the first step can be cached as a whole.
pub(super) struct Splitters {
    pub(super) outer: Splitter,
    pub(super) inner: Splitter,
}

struct Finder {
    automaton: AhoCorasick,
    rules: Vec<Rule>,
}

/// The rule of an added token.
struct Rule {
    id: u32,
    /// White space before it belongs to it.
    lstrip: bool,
    /// White space after it belongs to it.
    rstrip: bool,
    /// True if its text is text. It still hides the tokens inside of it.
    is_text: bool,
}

impl Splitters {
    /// Tokens of raw text come before tokens of normalized
    /// text, which must be the same as the raw one. The first step are the special ones if nothing
    /// can come in between, else all that are raw. `is_text` returns true for a token whose text is
    /// text.
    pub(super) fn new(
        tokens: &[(u32, tokenizers::AddedToken)],
        is_text: &dyn Fn(&str) -> bool,
    ) -> Result<Self, String> {
        let (normalized, raw): (Vec<_>, Vec<_>) = tokens.iter().partition(|(_, token)| token.normalized);
        let (special, plain): (Vec<_>, Vec<_>) = raw.iter().partition(|(_, token)| token.special);
        let splitter = |steps: &[Tokens<'_>]| Splitter::new(steps, is_text);
        if are_independent(&special, &plain) && !special.iter().any(|(_, token)| is_text(&token.content)) {
            Ok(Self { outer: splitter(&[special])?, inner: splitter(&[plain, normalized])? })
        } else {
            Ok(Self { outer: splitter(&[raw])?, inner: splitter(&[normalized])? })
        }
    }
}

type Tokens<'a> = Vec<&'a (u32, tokenizers::AddedToken)>;

/// Returns true if the matches of `first` do not depend on the presence of `second`.
fn are_independent(first: &Tokens<'_>, second: &Tokens<'_>) -> bool {
    let is_exact = |(_, token): &&(u32, tokenizers::AddedToken)| !token.lstrip && !token.rstrip;
    let hides = |second: &str| first.iter().any(|(_, first)| hides(second, &first.content));
    first.iter().chain(second).all(is_exact) && !second.iter().any(|(_, token)| hides(&token.content))
}

/// Returns true if a match of `one` can prevent one of `other`: it contains it, or overlaps its
/// start.
fn hides(one: &str, other: &str) -> bool {
    let reaches = |(at, _)| other.starts_with(&one[at..]);
    one.contains(other) || one.char_indices().skip(1).any(reaches)
}

impl Splitter {
    fn new(steps: &[Tokens<'_>], is_text: &dyn Fn(&str) -> bool) -> Result<Self, String> {
        let steps = steps.iter().filter(|tokens| !tokens.is_empty());
        Ok(Self { finders: steps.map(|tokens| Finder::new(tokens, is_text)).collect::<Result<_, _>>()? })
    }

    /// Returns the parts of the text, in order. Text parts are not empty.
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
    fn new(tokens: &[&(u32, tokenizers::AddedToken)], is_text: &dyn Fn(&str) -> bool) -> Result<Self, String> {
        let texts = tokens.iter().map(|(_, token)| token.content.as_str());
        let automaton = AhoCorasick::builder().match_kind(MatchKind::LeftmostLongest).build(texts);
        let rules = tokens.iter().map(|(id, token)| {
            let tokenizers::AddedToken { content, lstrip, rstrip, .. } = token;
            Rule { id: *id, lstrip: *lstrip, rstrip: *rstrip, is_text: is_text(content) }
        });
        Ok(Self { automaton: automaton.map_err(|error| error.to_string())?, rules: rules.collect() })
    }

    /// Returns the tokens and their ranges, including the white space that they strip.
    fn matches(&self, text: &str) -> impl Iterator<Item = (u32, Range<usize>)> {
        let mut done = 0;
        self.automaton.find_iter(text).filter_map(move |found| {
            let rule = &self.rules[found.pattern().as_usize()];
            if rule.is_text {
                return None;
            }
            let range = rule.widen(text, found.range(), done);
            done = range.end;
            Some((rule.id, range))
        })
    }
}

impl Rule {
    /// Widens a range by the stripped white space, but not before `done`, the end of the previous
    /// token.
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

//! Reads the syntax of Python's `regex` module into a tree.
//!
//! Only constructs that a linear-time search can follow are read. All others are refused by name.

use super::class::CharSet;
use super::error::{Construct, PatternError};
use super::fuzzy::{self, Brace};
use super::source::Source;

/// Expressions within more expressions than this are refused: the reader and the compiler recurse.
const MAX_DEPTH: usize = 200;
/// The number from which Python refuses the count of a repeat.
const COUNT_LIMIT: u64 = u32::MAX as u64;

/// A part of a pattern.
#[derive(Debug, Clone)]
pub(super) enum Node {
    /// Matches nothing, at no place.
    Never,
    /// One character of a set.
    Set(CharSet),
    Assert(Assertion),
    Sequence(Vec<Node>),
    /// The first alternative that leads to a match is taken.
    Branch(Vec<Node>),
    Repeat {
        node: Box<Node>,
        min: u32,
        max: Option<u32>,
        is_greedy: bool,
    },
    /// A group that captures, by the index of its name if it has one.
    Group(Option<usize>, Box<Node>),
}

impl Node {
    /// Returns true if the part can match an empty text.
    pub(super) fn is_nullable(&self) -> bool {
        match self {
            Self::Never | Self::Set(_) => false,
            Self::Assert(_) => true,
            Self::Sequence(nodes) => nodes.iter().all(Self::is_nullable),
            Self::Branch(nodes) => nodes.iter().any(Self::is_nullable),
            Self::Repeat { node, min, .. } => *min == 0 || node.is_nullable(),
            Self::Group(_, node) => node.is_nullable(),
        }
    }

    /// Returns the node of a text.
    pub(super) fn literal(text: &str) -> Self {
        Self::Sequence(text.chars().map(|c| Self::Set(CharSet::one(c.into()))).collect())
    }
}

/// A condition on the place between two characters.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Assertion {
    TextStart,
    TextEnd,
    /// At the end of the text, or before a newline that ends it.
    LastLineEnd,
    LineStart,
    LineEnd,
    WordEdge,
    NoWordEdge,
    WordStart,
    WordEnd,
}

/// The tree of a pattern, and the names of its groups.
#[derive(Debug)]
pub(super) struct Syntax {
    pub(super) root: Node,
    pub(super) names: Vec<String>,
}

/// Reads a pattern. The flag `s` is on from its start.
pub(super) fn read(pattern: &str) -> Result<Syntax, PatternError> {
    let flags = Flags { any_case: false, lines: false, dot_all: true, verbose: false };
    let mut reader = Reader { source: Source::new(pattern), flags, names: Vec::new(), depth: 0 };
    let root = reader.branch()?;
    if !reader.source.is_at_end() {
        return Err(reader.invalid("a closing parenthesis has no opening one"));
    }
    Ok(Syntax { root, names: reader.names })
}

#[derive(Debug, Clone, Copy)]
pub(super) struct Flags {
    pub(super) any_case: bool,
    lines: bool,
    dot_all: bool,
    pub(super) verbose: bool,
}

/// The reader of a pattern.
pub(super) struct Reader {
    pub(super) source: Source,
    pub(super) flags: Flags,
    names: Vec<String>,
    depth: usize,
}

pub(super) type Read<T> = Result<T, PatternError>;

impl Reader {
    pub(super) fn invalid(&self, reason: &str) -> PatternError {
        PatternError::Invalid { reason: reason.to_owned(), at: self.source.at }
    }

    pub(super) fn refused<T>(&self, construct: Construct) -> Read<T> {
        Err(PatternError::Refused { construct, at: self.source.at })
    }

    fn expect(&mut self, token: &str) -> Read<()> {
        if self.source.take(token) { Ok(()) } else { Err(self.invalid(&format!("`{token}` is missing"))) }
    }

    fn set_flags(&mut self, flags: Flags) {
        self.flags = flags;
        self.source.is_verbose = flags.verbose;
    }

    fn branch(&mut self) -> Read<Node> {
        self.depth += 1;
        if self.depth > MAX_DEPTH {
            return self.refused(Construct::DeepNesting);
        }
        let mut nodes = vec![self.sequence()?];
        while self.source.take("|") {
            nodes.push(self.sequence()?);
        }
        self.depth -= 1;
        Ok(if nodes.len() == 1 { nodes.pop().unwrap_or(Node::Never) } else { Node::Branch(nodes) })
    }

    fn sequence(&mut self) -> Read<Node> {
        let mut nodes = Vec::new();
        // True if the last node may be repeated.
        let mut is_open = false;
        loop {
            let before = self.source.at;
            let Some(c) = self.source.next() else { break };
            let node = match c {
                ')' | '|' => {
                    self.source.at = before;
                    break;
                }
                '\\' => self.escape_node()?,
                '(' => match self.paren()? {
                    Some(node) => node,
                    None => continue,
                },
                '.' if self.flags.dot_all => Node::Set(CharSet::all()),
                '.' => Node::Set(CharSet::one('\n'.into()).negated()),
                '[' => Node::Set(self.set()?),
                '^' if self.flags.lines => Node::Assert(Assertion::LineStart),
                '^' => Node::Assert(Assertion::TextStart),
                '$' if self.flags.lines => Node::Assert(Assertion::LineEnd),
                '$' => Node::Assert(Assertion::LastLineEnd),
                '?' | '*' | '+' | '{' => match self.counts(c)? {
                    Some(counts) => {
                        let last = if is_open { nodes.pop() } else { None };
                        let last = last.ok_or_else(|| self.invalid("nothing that a count repeats"))?;
                        nodes.push(self.repeat(last, counts)?);
                        is_open = false;
                        continue;
                    }
                    None => match fuzzy::read(&mut self.source) {
                        Brace::Ordinary => self.char_node(c.into()),
                        Brace::Fuzzy => return self.refused(Construct::Fuzzy),
                        Brace::Invalid => return Err(self.invalid("not a fuzzy constraint")),
                    },
                },
                _ => self.char_node(c.into()),
            };
            nodes.push(node);
            is_open = true;
        }
        Ok(if nodes.len() == 1 { nodes.pop().unwrap_or(Node::Never) } else { Node::Sequence(nodes) })
    }

    pub(super) fn char_node(&self, code: u32) -> Node {
        self.set_node(CharSet::one(code))
    }

    fn set_node(&self, set: CharSet) -> Node {
        Node::Set(if self.flags.any_case { set.in_any_case() } else { set })
    }

    /// Reads the counts of a repeat that starts with a character. Returns None if it is an ordinary brace.
    fn counts(&mut self, c: char) -> Read<Option<(u32, Option<u32>)>> {
        match c {
            '?' => return Ok(Some((0, Some(1)))),
            '*' => return Ok(Some((0, None))),
            '+' => return Ok(Some((1, None))),
            _ => {}
        }
        let before = self.source.at;
        let min = self.source.take_while(|c| c.is_ascii_digit());
        let max = self.source.take(",").then(|| self.source.take_while(|c| c.is_ascii_digit()));
        if (max.is_none() && min.is_empty()) || !self.source.take("}") {
            self.source.at = before;
            return Ok(None);
        }
        let max = match max {
            None => Some(self.count(&min)?),
            Some(max) if max.is_empty() => None,
            Some(max) => Some(self.count(&max)?),
        };
        let min = if min.is_empty() { 0 } else { self.count(&min)? };
        if max.is_some_and(|max| min > max) {
            return Err(self.invalid("the least count of a repeat is above its greatest"));
        }
        Ok(Some((min, max)))
    }

    fn count(&self, digits: &str) -> Read<u32> {
        let count = digits.parse::<u64>().ok().filter(|count| *count < COUNT_LIMIT);
        count.and_then(|count| count.try_into().ok()).ok_or_else(|| self.invalid("a count of a repeat is too large"))
    }

    fn repeat(&mut self, node: Node, (min, max): (u32, Option<u32>)) -> Read<Node> {
        let before = self.source.at;
        let is_greedy = match self.source.next() {
            Some('?') => false,
            Some('+') => return self.refused(Construct::Possessive),
            _ => {
                self.source.at = before;
                true
            }
        };
        if min == 1 && max == Some(1) {
            return Ok(node);
        }
        Ok(Node::Repeat { node: Box::new(node), min, max, is_greedy })
    }

    /// Reads what follows an opening parenthesis. Flags and comments are no part of the pattern.
    fn paren(&mut self) -> Read<Option<Node>> {
        let before = self.source.at;
        match self.source.next_raw() {
            Some('?') => return self.extension(),
            Some('*') => {
                let word = self.source.take_while(|c| c != ')' && c != '>');
                if word.starts_with(char::is_alphabetic) {
                    return self.verb(&word).map(Some);
                }
            }
            _ => {}
        }
        self.source.at = before;
        Ok(Some(Node::Group(None, Box::new(self.group()?))))
    }

    fn verb(&mut self, word: &str) -> Read<Node> {
        match word {
            "FAIL" | "F" => self.expect(")").map(|()| Node::Never),
            "PRUNE" | "SKIP" => self.refused(Construct::Verb),
            _ => Err(self.invalid("an unknown verb")),
        }
    }

    /// Reads the rest of a group, and returns to the flags before it.
    fn group(&mut self) -> Read<Node> {
        let flags = self.flags;
        let node = self.branch()?;
        self.expect(")")?;
        self.set_flags(flags);
        Ok(node)
    }

    fn named_group(&mut self) -> Read<Node> {
        let name = self.name()?;
        let index = self.names.iter().position(|earlier| *earlier == name).unwrap_or(self.names.len());
        if index == self.names.len() {
            self.names.push(name);
        }
        self.expect(">")?;
        Ok(Node::Group(Some(index), Box::new(self.group()?)))
    }

    /// Reads what follows `(?`.
    fn extension(&mut self) -> Read<Option<Node>> {
        let before = self.source.at;
        match self.source.next_raw() {
            Some('<') => {
                let before = self.source.at;
                if let Some('=' | '!') = self.source.next() {
                    return self.refused(Construct::LookBehind);
                }
                self.source.at = before;
                self.named_group().map(Some)
            }
            Some('=' | '!') => self.refused(Construct::LookAhead),
            Some('P') => match self.source.next() {
                Some('<') => self.named_group().map(Some),
                Some('=') => self.refused(Construct::BackReference),
                Some('>' | '&') => self.refused(Construct::Recursion),
                _ => Err(self.invalid("an unknown extension")),
            },
            Some('#') => self.comment().map(|()| None),
            Some('(') => self.refused(Construct::Conditional),
            Some('>') => self.refused(Construct::Atomic),
            Some('|') => self.refused(Construct::BranchReset),
            Some('R' | '&' | '0'..='9') => self.refused(Construct::Recursion),
            Some('+' | '-') if self.source.peek().is_some_and(|c| c.is_ascii_digit()) => {
                self.refused(Construct::Recursion)
            }
            _ => {
                self.source.at = before;
                self.flags_or_group()
            }
        }
    }

    fn comment(&mut self) -> Read<()> {
        loop {
            match self.source.next_raw() {
                Some(')') => return Ok(()),
                Some('\\') => drop(self.source.next_raw()),
                Some(_) => {}
                None => return Err(self.invalid("a comment has no end")),
            }
        }
    }

    fn flags_or_group(&mut self) -> Read<Option<Node>> {
        let before = self.flags;
        let mut flags = before;
        let on = self.flag_letters()?;
        let turns_off = self.source.take("-");
        let off = if turns_off { self.flag_letters()? } else { String::new() };
        if (turns_off && off.is_empty()) || on.chars().any(|c| off.contains(c)) {
            return Err(self.invalid("flags contradict each other"));
        }
        if off.contains(['u', '0']) {
            return self.refused(Construct::Flag('u'));
        }
        for (letters, is_on) in [(&on, true), (&off, false)] {
            for letter in letters.chars() {
                match letter {
                    'i' => flags.any_case = is_on,
                    'm' => flags.lines = is_on,
                    's' => flags.dot_all = is_on,
                    'x' => flags.verbose = is_on,
                    _ => {}
                }
            }
        }
        if self.source.take(":") {
            self.set_flags(flags);
            let node = self.branch()?;
            self.expect(")")?;
            self.set_flags(before);
            return Ok(Some(node));
        }
        if !self.source.take(")") {
            return Err(self.invalid("an unknown extension"));
        }
        self.set_flags(flags);
        Ok(None)
    }

    /// Reads letters of flags, and refuses the ones that are not followed.
    fn flag_letters(&mut self) -> Read<String> {
        let mut letters = String::new();
        loop {
            let before = self.source.at;
            match self.source.next() {
                Some(c @ ('i' | 'm' | 's' | 'x' | 'u')) => letters.push(c),
                // Version 0 is the default.
                Some('V') if self.source.take("0") => letters.push('0'),
                Some(c @ ('a' | 'b' | 'e' | 'f' | 'L' | 'p' | 'r' | 'w' | 'V')) => {
                    return self.refused(Construct::Flag(c));
                }
                _ => {
                    self.source.at = before;
                    return Ok(letters);
                }
            }
        }
    }

    fn name(&mut self) -> Read<String> {
        let name = self.source.take_while(|c| c != ')' && c != '>');
        if super::class::is_identifier(&name) { Ok(name) } else { Err(self.invalid("not the name of a group")) }
    }
}

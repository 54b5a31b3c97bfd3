//! Writes Lark grammars of calls.

use std::collections::{HashMap, HashSet};

use tandem_model_files::tokenizer::Tokenizer;

use crate::answer_rules::{ID, INDEX, KEY, Notation, special_tokens};

/// A part of a text.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Part {
    Text(String),
    /// A special token, which no text of a grammar allows.
    Token(u32),
    Id,
    Index,
}

/// Writes the grammar of the calls in one notation.
pub(super) struct Writer<'a> {
    pub(super) notation: &'a Notation,
    /// The text before the first call.
    section: &'a str,
    /// The special tokens, the longest text first.
    tokens: Vec<(String, u32)>,
    /// The rules below the start, a line each.
    rules: Vec<String>,
    /// The names of rules with an expression, by what follows the name.
    names: HashMap<String, String>,
}

impl<'a> Writer<'a> {
    pub(super) fn new(notation: &'a Notation, section: &'a str, tokenizer: &Tokenizer) -> Self {
        Self { notation, section, tokens: special_tokens(tokenizer), rules: Vec::new(), names: HashMap::new() }
    }

    /// Returns the grammar of answers with calls. `tools` are the expressions of a call from the tool's name to the end of
    /// its arguments. `is_reasoning`: the answer begins within reasoning.
    pub(super) fn forced(mut self, tools: &[String], repeats: bool, is_reasoning: bool) -> String {
        let calls = self.calls(repeats);
        let reasoning = match self.notation.reasoning.clone() {
            Some((_, close)) if is_reasoning => self.until(&close) + " ",
            Some((open, close)) => {
                let (open, text) = (self.text(&open), self.until(&close));
                format!("({open} {text})? ")
            }
            None => String::new(),
        };
        self.finished(&format!("{reasoning}SPACE? {calls}"), tools)
    }

    /// Returns the grammar of answers with any content and at most one call after it. None if the content has marks of its
    /// own.
    pub(super) fn one_at_most(mut self, tools: &[String]) -> Option<String> {
        if self.notation.marks_content {
            return None;
        }
        let calls = self.calls(false);
        let opening = self.parts(&[self.section, &self.notation.call].concat());
        let start = match opening.first()? {
            Part::Text(text) => {
                let mark = mark(text);
                let pattern = pattern(mark);
                let rest = self.opened(mark);
                let plain = format!("PLAIN: /(?s:.+)/ & ~/(?s:.*){pattern}(?s:.*)/");
                self.rules.push(format!("before[lazy]: /(?s:.*){pattern}/\n{plain}"));
                format!("PLAIN | before {rest}")
            }
            _ => {
                self.rules.push("PLAIN: /(?s:.+)/".to_owned());
                format!("PLAIN | PLAIN? {calls}")
            }
        };
        Some(self.finished(&start, tools))
    }

    /// Returns one call after the start of its mark.
    fn opened(&mut self, mark: &str) -> String {
        let notation = self.notation;
        let opening = [self.section, &notation.call].concat();
        let opening = opening.strip_prefix(mark).unwrap_or(&opening).to_owned();
        let last = [&notation.end, &notation.last].map(String::as_str).concat();
        format!("{} tool {}", self.text(&opening), self.text(&last))
    }

    fn calls(&mut self, repeats: bool) -> String {
        let Notation { call, end, join, last, .. } = self.notation;
        let (section, last) = (self.text(self.section), self.text(last));
        let call = format!("{} tool {}", self.text(call), self.text(end));
        let more = join.as_ref().filter(|_| repeats).map(|join| format!("({} {call})*", self.text(join)));
        [&section, &call, more.as_deref().unwrap_or_default(), &last].map(str::trim).join(" ")
    }

    fn finished(self, start: &str, tools: &[String]) -> String {
        let named = tools.iter().enumerate();
        let rules: Vec<String> = named.clone().map(|(index, tool)| format!("tool_{index}: {tool}")).collect();
        let tools: Vec<String> = named.map(|(index, _)| format!("tool_{index}")).collect();
        let mut lines = vec![format!("start: {start}"), format!("tool: {}", tools.join(" | "))];
        lines.extend(rules);
        lines.extend(self.rules);
        // A model may write line ends before a call, and after its reasoning.
        lines.push("SPACE: /[ \\n]{1,4}/".to_owned());
        lines.push("ID: /[A-Za-z0-9_.:-]{1,64}/".to_owned());
        lines.push("INDEX: /[0-9]{1,3}/".to_owned());
        let all = lines.join("\n");
        // A rule without a use is an error of the library.
        let bodies = all.lines().filter_map(|line| line.split_once(':'));
        let used: HashSet<&str> = bodies.flat_map(|(_, body)| words(body)).chain(["start"]).collect();
        let is_used = |line: &&str| used.contains(line.split([':', '[']).next().unwrap_or_default());
        all.lines().filter(is_used).map(|line| format!("{line}\n")).collect()
    }

    /// Returns the expression of a text.
    pub(super) fn text(&self, text: &str) -> String {
        let parts = self.parts(text).into_iter().map(|part| match part {
            Part::Text(text) => quoted(&text),
            Part::Token(id) => format!("<[{id}]>"),
            Part::Id => "ID".to_owned(),
            Part::Index => "INDEX".to_owned(),
        });
        parts.collect::<Vec<_>>().join(" ")
    }

    /// Returns the expression of any text up to `end`, and of `end`.
    pub(super) fn until(&mut self, end: &str) -> String {
        let parts = self.parts(end);
        let rest = |count: usize| {
            let length: usize = parts.iter().take(count).map(|part| self.length(part)).sum();
            self.text(end.get(length..).unwrap_or_default())
        };
        match parts.first() {
            None => self.rule("/(?s:.*)/"),
            Some(Part::Text(text)) => {
                let (pattern, is_whole) = (pattern(text), parts.len() == 1);
                let rest = rest(1);
                let rule = self.named("[lazy]", &format!("/(?s:.*){pattern}/"));
                // The same text may come before the special token that ends it.
                if is_whole { rule } else { format!("{rule}+ {rest}") }
            }
            Some(_) => {
                let rest = rest(0);
                format!("{}? {rest}", self.rule("/(?s:.+)/"))
            }
        }
    }

    /// Returns the expression of any text of these characters up to `end`, and of `end`.
    pub(super) fn quoted_until(&mut self, quote: char, end: &str) -> String {
        let rule = self.rule(&format!("/[^{quote}\\\\\\n]*/"));
        format!("{rule} {}", self.text(end))
    }

    /// Returns the name of a rule with this expression.
    pub(super) fn rule(&mut self, expression: &str) -> String {
        self.named("", expression)
    }

    fn named(&mut self, kind: &str, expression: &str) -> String {
        let body = format!("{kind}: {expression}");
        if let Some(name) = self.names.get(&body) {
            return name.clone();
        }
        let name = format!("part_{}", self.rules.len());
        self.rules.push([name.as_str(), &body].concat());
        self.names.insert(body, name.clone());
        name
    }

    fn parts(&self, text: &str) -> Vec<Part> {
        let (mut parts, mut rest) = (Vec::new(), text);
        while let Some(first) = rest.chars().next() {
            let token = self.tokens.iter().find(|(text, _)| rest.starts_with(text.as_str()));
            let (part, length) = match (first, token) {
                (_, Some((text, id))) => (Part::Token(*id), text.len()),
                (ID, _) => (Part::Id, first.len_utf8()),
                (INDEX, _) => (Part::Index, first.len_utf8()),
                _ => {
                    match parts.last_mut() {
                        Some(Part::Text(text)) => text.push(first),
                        _ => parts.push(Part::Text(first.to_string())),
                    }
                    rest = &rest[first.len_utf8()..];
                    continue;
                }
            };
            parts.push(part);
            rest = &rest[length..];
        }
        parts
    }

    fn length(&self, part: &Part) -> usize {
        match part {
            Part::Text(text) => text.len(),
            Part::Token(id) => self.tokens.iter().find(|(_, other)| other == id).map_or(0, |(text, _)| text.len()),
            Part::Id => ID.len_utf8(),
            Part::Index => INDEX.len_utf8(),
        }
    }
}

/// Returns a text with the name of a parameter in its places.
pub(super) fn with_key(text: &str, key: &str) -> String {
    text.replace(KEY, key)
}

/// Returns the start of a text that shows that a call starts: the first name in brackets, else all of it.
fn mark(text: &str) -> &str {
    let end = if text.starts_with(['<', '[']) { text.find(['>', ']']).map(|at| at + 1) } else { None };
    end.and_then(|end| text.get(..end)).unwrap_or(text)
}

/// Quotes a text as a string of a Lark grammar. Such strings are those of JSON, except for DEL.
pub(super) fn quoted(text: &str) -> String {
    serde_json::Value::from(text).to_string().replace('\u{7f}', "\\u007f")
}

/// Returns the regular expression of a text, for a place between slashes.
fn pattern(text: &str) -> String {
    regex_syntax::escape(text).replace('/', "\\/").replace('\n', "\\n").replace('\r', "\\r")
}

/// Returns the names in an expression.
fn words(expression: &str) -> impl Iterator<Item = &str> {
    expression.split(|c: char| !c.is_alphanumeric() && c != '_')
}

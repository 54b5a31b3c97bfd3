//! Calls in Python's syntax: `name(key=value, …)`, with literals as values.

use super::fault::ContentError;
use super::python;
use super::value::{Dict, Keys, Value};
use super::written::{Unread, Written, made};

/// The most values within values.
const MAX_DEPTH: usize = 64;

const NOT_A_CALL: ContentError = ContentError::NotA("a call in Python's syntax");

/// Returns the calls of a text: in a list or one after another, also in a fenced block of code.
pub(super) fn calls(text: &str) -> Result<Written, ContentError> {
    let text = text.trim_end_matches(python::is_space);
    let start = text.len() - text.trim_start_matches(python::is_space).len();
    let mut reader = Reader { text, at: start };
    if let Some(inner) = reader.rest().strip_prefix("```").and_then(|inner| inner.strip_suffix("```")) {
        let code = inner.strip_prefix("python").unwrap_or(inner);
        reader = Reader { text: text.strip_suffix("```").unwrap_or(text), at: text.len() - 3 - code.len() };
    }
    reader.calls().filter(|written| !written.calls.is_empty()).ok_or(NOT_A_CALL)
}

/// Returns the value of a literal: an object, a list, a text, a number or a constant.
pub(super) fn literal(text: &str) -> Option<Value> {
    let mut reader = Reader { text: python::strip(text), at: 0 };
    let value = reader.value(0)?;
    reader.skip_space();
    reader.rest().is_empty().then_some(value)
}

/// Returns true if Python reads a number's text as an integer only from a text, not in its syntax.
fn has_leading_zero(number: &str) -> bool {
    let digits = number.trim_start_matches(['-', '+']);
    digits.starts_with('0') && digits.contains(|c: char| ('1'..='9').contains(&c))
}

struct Reader<'t> {
    text: &'t str,
    at: usize,
}

impl<'t> Reader<'t> {
    fn rest(&self) -> &'t str {
        self.text.get(self.at..).unwrap_or_default()
    }

    fn skip_space(&mut self) {
        let rest = self.rest();
        self.at += rest.len() - rest.trim_start_matches(python::is_space).len();
    }

    /// Skips white space and takes a character, if it is next.
    fn takes(&mut self, wanted: char) -> bool {
        self.skip_space();
        let is_next = self.rest().starts_with(wanted);
        if is_next {
            self.at += wanted.len_utf8();
        }
        is_next
    }

    /// Reads calls. An item that is no call remains unread.
    fn calls(&mut self) -> Option<Written> {
        let mut in_list = self.takes('[');
        let is_list = in_list;
        let mut written = Written::default();
        loop {
            while self.takes(',') || self.takes(';') {}
            if in_list && self.takes(']') {
                in_list = false;
            }
            self.skip_space();
            if self.rest().is_empty() {
                return (!in_list).then_some(written);
            }
            if is_list && !in_list {
                return None;
            }
            let start = self.at;
            if written.is_full() {
                return Some(written);
            }
            if let Some((name, arguments)) = self.call() {
                written.calls.push(made(name, Value::from(arguments), None));
                continue;
            }
            self.at = start;
            self.skip_item(in_list);
            let start = self.text.get(..start).unwrap_or_default().trim_end_matches(python::is_space).len();
            written.unread.push(Unread { range: start..self.at, error: Some(NOT_A_CALL) });
            if self.rest().is_empty() {
                return Some(written);
            }
        }
    }

    /// Skips text up to a comma, a semicolon, a line break or the end of the list, outside of brackets and strings.
    fn skip_item(&mut self, in_list: bool) {
        let mut depth = 0_usize;
        while let Some(c) = self.rest().chars().next() {
            match c {
                ',' | ';' | '\n' if depth == 0 => return,
                ']' if depth == 0 && in_list => return,
                '"' | '\'' => {
                    if self.string().is_none() {
                        self.at = self.text.len();
                    }
                    continue;
                }
                '(' | '[' | '{' => depth += 1,
                ')' | ']' | '}' => depth = depth.saturating_sub(1),
                _ => {}
            }
            self.at += c.len_utf8();
        }
    }

    fn call(&mut self) -> Option<(String, Dict)> {
        let name = self.name()?;
        let mut arguments = Dict::new();
        if !self.takes('(') {
            return None;
        }
        while !self.takes(')') {
            self.skip_space();
            let key = self.name()?;
            if !self.takes('=') {
                return None;
            }
            let value = self.value(0)?;
            Keys::Distinct.insert(&mut arguments, key, value).ok()?;
            if !self.takes(',') {
                return self.takes(')').then_some((name, arguments));
            }
        }
        Some((name, arguments))
    }

    fn name(&mut self) -> Option<String> {
        let rest = self.rest();
        let end = rest.find(|c: char| !(c.is_alphanumeric() || matches!(c, '_' | '.' | '-'))).unwrap_or(rest.len());
        let name =
            rest.get(..end).filter(|name| !name.is_empty() && !name.starts_with(|c: char| c.is_ascii_digit()))?;
        self.at += end;
        Some(name.to_owned())
    }

    fn value(&mut self, depth: usize) -> Option<Value> {
        if depth > MAX_DEPTH {
            return None;
        }
        self.skip_space();
        match self.rest().chars().next()? {
            '"' | '\'' => self.string().map(Value::Text),
            '[' | '(' => self.list(depth),
            '{' => self.dict(depth),
            _ => self.scalar(),
        }
    }

    fn list(&mut self, depth: usize) -> Option<Value> {
        let close = if self.takes('[') { ']' } else { self.takes('(').then_some(')')? };
        let mut items = Vec::new();
        while !self.takes(close) {
            items.push(self.value(depth + 1)?);
            if !self.takes(',') {
                let is_end = self.takes(close);
                // A value in parentheses is no tuple.
                let is_value = close == ')' && items.len() == 1;
                return if is_value { items.pop() } else { Some(Value::List(items)) }.filter(|_| is_end);
            }
        }
        Some(Value::List(items))
    }

    fn dict(&mut self, depth: usize) -> Option<Value> {
        let mut entries = Dict::new();
        let mut is_open = self.takes('{');
        while is_open && !self.takes('}') {
            self.skip_space();
            let key = self.string()?;
            if !self.takes(':') {
                return None;
            }
            let value = self.value(depth + 1)?;
            Keys::Distinct.insert(&mut entries, key, value).ok()?;
            if !self.takes(',') {
                is_open = false;
                if !self.takes('}') {
                    return None;
                }
            }
        }
        Some(entries.into())
    }

    fn scalar(&mut self) -> Option<Value> {
        let rest = self.rest();
        let end = rest.find(|c: char| python::is_space(c) || matches!(c, ',' | ')' | ']' | '}' | ':' | ';'));
        let word = rest.get(..end.unwrap_or(rest.len()))?;
        let value = match word {
            "None" | "null" => Value::Null,
            "True" | "true" => Value::Bool(true),
            "False" | "false" => Value::Bool(false),
            number if number.starts_with(|c: char| c.is_ascii_digit() || matches!(c, '-' | '+' | '.')) => {
                let float = || python::float(number).filter(|float| float.is_finite()).map(Value::Float);
                let int = || python::int(number).filter(|_| !has_leading_zero(number)).map(Value::Int);
                int().or_else(|| float().filter(|_| number.contains(['.', 'e', 'E'])))?
            }
            _ => return None,
        };
        self.at += word.len();
        Some(value)
    }

    /// Reads a string with Python's escapes. An unknown escape stays as it is, as in Python.
    fn string(&mut self) -> Option<String> {
        let quote = self.rest().chars().next().filter(|c| matches!(c, '"' | '\''))?;
        let triple: String = [quote; 3].iter().collect();
        let end: &str = if self.rest().starts_with(&triple) { &triple } else { triple.get(..1)? };
        self.at += end.len();
        let mut out = String::new();
        loop {
            let rest = self.rest();
            if rest.starts_with(end) {
                self.at += end.len();
                return Some(out);
            }
            let c = rest.chars().next()?;
            self.at += c.len_utf8();
            if c == '\\' { self.escape(&mut out)? } else { out.push(c) }
        }
    }

    fn escape(&mut self, out: &mut String) -> Option<()> {
        let c = self.rest().chars().next()?;
        self.at += c.len_utf8();
        let char = match c {
            '\n' => return Some(()),
            '\\' | '\'' | '"' => c,
            'n' => '\n',
            't' => '\t',
            'r' => '\r',
            'b' => '\u{8}',
            'f' => '\u{c}',
            'v' => '\u{b}',
            'a' => '\u{7}',
            '0'..='7' => {
                let is_digit = |c: &char| ('0'..='7').contains(c);
                let more: String = self.rest().chars().take(2).take_while(is_digit).collect();
                self.at += more.len();
                u32::from_str_radix(&format!("{c}{more}"), 8).ok().and_then(char::from_u32)?
            }
            'N' => return None,
            'x' => self.code(2)?,
            'u' => self.code(4)?,
            'U' => self.code(8)?,
            other => {
                out.push('\\');
                other
            }
        };
        out.push(char);
        Some(())
    }

    /// Reads a code point of this number of digits. A pair of surrogates is one character.
    fn code(&mut self, digits: usize) -> Option<char> {
        let code = |text: &str| u32::from_str_radix(text.get(..digits)?, 16).ok();
        let first = code(self.rest())?;
        self.at += digits;
        if !(0xd800..0xdc00).contains(&first) {
            return char::from_u32(first);
        }
        let second = code(self.rest().strip_prefix("\\u")?)?;
        self.at += 2 + digits;
        char::decode_utf16([u16::try_from(first).ok()?, u16::try_from(second).ok()?]).next()?.ok()
    }
}

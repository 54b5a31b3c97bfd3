//! The arguments of a tool call, read as Python's `json.loads` reads them and written as `json.dumps(ensure_ascii=False)` writes
//! them, in one pass. Unlike serde_json this takes `NaN`, `Infinity` and deep nesting.

use std::collections::HashMap;

use tandem_template::{Marks, marks};

use crate::python::{json_number, quote_json};

/// A JSON value.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Json {
    /// A string, decoded.
    Text(String),
    /// Any other scalar, as it is written.
    Scalar(String),
    /// `[…]`
    List(Vec<Json>),
    /// `{…}`
    Dict(Vec<(String, Json)>),
}

impl Json {
    /// As `json.dumps` writes it.
    pub(super) fn dump(&self) -> String {
        let mut out = String::new();
        self.write(&mut out);
        out
    }

    fn marked(self, marks: Marks) -> Self {
        match self {
            Self::Text(text) => Self::Text(marks.marked(&text)),
            Self::Scalar(text) => Self::Scalar(marks.marked(&text)),
            Self::List(items) => Self::List(items.into_iter().map(|item| item.marked(marks)).collect()),
            Self::Dict(entries) => {
                Self::Dict(entries.into_iter().map(|(key, value)| (marks.marked(&key), value.marked(marks))).collect())
            }
        }
    }

    fn write(&self, out: &mut String) {
        match self {
            Self::Text(text) => quote_json(out, text),
            Self::Scalar(text) => out.push_str(text),
            Self::List(items) => {
                out.push('[');
                for (i, item) in items.iter().enumerate() {
                    out.push_str(if i == 0 { "" } else { ", " });
                    item.write(out);
                }
                out.push(']');
            }
            Self::Dict(entries) => {
                out.push('{');
                for (i, (key, value)) in entries.iter().enumerate() {
                    out.push_str(if i == 0 { "" } else { ", " });
                    quote_json(out, key);
                    out.push_str(": ");
                    value.write(out);
                }
                out.push('}');
            }
        }
    }
}

/// Why arguments cannot be read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Unreadable {
    /// They are not JSON, for Python either.
    NotJson,
    /// They are JSON, but no object.
    NotAnObject,
    /// Half of a surrogate pair, which Python reads but no UTF-8 text can hold.
    LoneSurrogate,
    /// More levels than [`MAX_DEPTH`].
    TooDeep,
}

impl Unreadable {
    /// For people.
    pub(super) fn problem(self) -> String {
        match self {
            Self::NotJson => "must be the JSON text of an object".to_owned(),
            Self::NotAnObject => "must be the JSON text of an object, not of another value".to_owned(),
            Self::LoneSurrogate => "holds half of a surrogate pair, which no text can hold".to_owned(),
            Self::TooDeep => format!("is nested more than {MAX_DEPTH} levels deep"),
        }
    }
}

/// Python gives up at about 1,000 levels.
const MAX_DEPTH: usize = 500;
/// Python reads no longer integers.
const MAX_INTEGER_DIGITS: usize = 4300;

/// Reads the JSON text of an object. If the text is marked, so is all that is read from it.
pub(super) fn parse(text: &str) -> Result<Vec<(String, Json)>, Unreadable> {
    let entries = parse_plain(&marks::plain(text))?;
    Ok(match marks::of(text) {
        Some(marks) => entries.into_iter().map(|(key, value)| (marks.marked(&key), value.marked(marks))).collect(),
        None => entries,
    })
}

fn parse_plain(text: &str) -> Result<Vec<(String, Json)>, Unreadable> {
    let mut reader = Reader { rest: text, depth: 0, has_lone_surrogate: false };
    let value = reader.value()?;
    reader.skip_space();
    match value {
        _ if !reader.rest.is_empty() => Err(Unreadable::NotJson),
        _ if reader.has_lone_surrogate => Err(Unreadable::LoneSurrogate),
        Json::Dict(entries) => Ok(entries),
        _ => Err(Unreadable::NotAnObject),
    }
}

struct Reader<'a> {
    rest: &'a str,
    depth: usize,
    has_lone_surrogate: bool,
}

type Read<T> = Result<T, Unreadable>;

impl Reader<'_> {
    fn skip_space(&mut self) {
        self.rest = self.rest.trim_start_matches([' ', '\t', '\n', '\r']);
    }

    fn take(&mut self, token: char) -> bool {
        let rest = self.rest.strip_prefix(token);
        self.rest = rest.unwrap_or(self.rest);
        rest.is_some()
    }

    fn expect(&mut self, token: char) -> Read<()> {
        self.skip_space();
        self.take(token).then_some(()).ok_or(Unreadable::NotJson)
    }

    fn value(&mut self) -> Read<Json> {
        self.skip_space();
        match self.rest.chars().next() {
            Some('"') => Ok(Json::Text(self.string()?)),
            Some('{') => Ok(Json::Dict(self.entries()?)),
            Some('[') => Ok(Json::List(self.items()?)),
            _ => Ok(Json::Scalar(self.scalar()?)),
        }
    }

    /// A key that comes again keeps its place and takes the later value.
    fn entries(&mut self) -> Read<Vec<(String, Json)>> {
        let mut entries: Vec<(String, Json)> = Vec::new();
        let mut places = HashMap::new();
        self.each('{', '}', |reader| {
            reader.skip_space();
            let key = reader.string()?;
            reader.expect(':')?;
            let value = reader.value()?;
            let place = *places.entry(key.clone()).or_insert(entries.len());
            match entries.get_mut(place) {
                Some((_, earlier)) => *earlier = value,
                None => entries.push((key, value)),
            }
            Ok(())
        })?;
        Ok(entries)
    }

    fn items(&mut self) -> Read<Vec<Json>> {
        let mut items = Vec::new();
        self.each('[', ']', |reader| {
            items.push(reader.value()?);
            Ok(())
        })?;
        Ok(items)
    }

    /// Reads items between commas, with the brackets around them.
    fn each(&mut self, open: char, close: char, mut item: impl FnMut(&mut Self) -> Read<()>) -> Read<()> {
        self.expect(open)?;
        self.depth += 1;
        if self.depth > MAX_DEPTH {
            return Err(Unreadable::TooDeep);
        }
        self.skip_space();
        if !self.take(close) {
            item(self)?;
            while self.expect(',').is_ok() {
                item(self)?;
            }
            self.expect(close)?;
        }
        self.depth -= 1;
        Ok(())
    }

    fn scalar(&mut self) -> Read<String> {
        for word in ["null", "true", "false", "NaN", "Infinity", "-Infinity"] {
            if let Some(rest) = self.rest.strip_prefix(word) {
                self.rest = rest;
                return Ok(word.to_owned());
            }
        }
        let end = self.rest.find(|c: char| !matches!(c, '0'..='9' | '.' | '-' | '+' | 'e' | 'E'));
        let (number, rest) = self.rest.split_at(end.unwrap_or(self.rest.len()));
        self.rest = rest;
        match is_number(number) {
            true => Ok(json_number(number)),
            false => Err(Unreadable::NotJson),
        }
    }

    fn string(&mut self) -> Read<String> {
        self.take('"').then_some(()).ok_or(Unreadable::NotJson)?;
        let mut text = String::new();
        loop {
            let end = self.rest.find(|c: char| c < ' ' || c == '"' || c == '\\').ok_or(Unreadable::NotJson)?;
            text.push_str(&self.rest[..end]);
            self.rest = &self.rest[end..];
            if self.take('"') {
                return Ok(text);
            }
            text.push(self.escape()?);
        }
    }

    fn escape(&mut self) -> Read<char> {
        let mut chars = self.rest.chars();
        let (Some('\\'), Some(kind)) = (chars.next(), chars.next()) else { return Err(Unreadable::NotJson) };
        self.rest = chars.as_str();
        match kind {
            '"' | '\\' | '/' => Ok(kind),
            'b' => Ok('\u{8}'),
            'f' => Ok('\u{c}'),
            'n' => Ok('\n'),
            'r' => Ok('\r'),
            't' => Ok('\t'),
            'u' => self.unicode(),
            _ => Err(Unreadable::NotJson),
        }
    }

    /// What follows `\u`: one unit of UTF-16, or the first of two.
    fn unicode(&mut self) -> Read<char> {
        let unit = self.unit()?;
        if let Some(c) = char::from_u32(unit.into()) {
            return Ok(c);
        }
        let after = self.rest;
        if let Some(rest) = after.strip_prefix("\\u") {
            self.rest = rest;
            if let Some(Ok(c)) = char::decode_utf16([unit, self.unit()?]).next() {
                return Ok(c);
            }
            self.rest = after;
        }
        self.has_lone_surrogate = true;
        Ok(char::REPLACEMENT_CHARACTER)
    }

    fn unit(&mut self) -> Read<u16> {
        let digits = self.rest.get(..4).filter(|digits| digits.bytes().all(|b| b.is_ascii_hexdigit()));
        let digits = digits.ok_or(Unreadable::NotJson)?;
        self.rest = &self.rest[4..];
        u16::from_str_radix(digits, 16).map_err(|_| Unreadable::NotJson)
    }
}

/// `-?(0|[1-9]\d*)(\.\d+)?([eE][-+]?\d+)?`
fn is_number(text: &str) -> bool {
    let (mantissa, exponent) = match text.split_once(['e', 'E']) {
        Some((mantissa, exponent)) => (mantissa, Some(exponent.strip_prefix(['-', '+']).unwrap_or(exponent))),
        None => (text, None),
    };
    let (integer, fraction) = match mantissa.split_once('.') {
        Some((integer, fraction)) => (integer, Some(fraction)),
        None => (mantissa, None),
    };
    let integer = integer.strip_prefix('-').unwrap_or(integer);
    let fits = integer.len() <= MAX_INTEGER_DIGITS || fraction.is_some() || exponent.is_some();
    let starts = integer == "0" || !integer.starts_with('0');
    fits && starts && [Some(integer), fraction, exponent].into_iter().flatten().all(is_digits)
}

fn is_digits(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit())
}

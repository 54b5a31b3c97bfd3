//! Python's `json.loads` and `json.dumps(ensure_ascii=False)`, in one pass over the text.
//!
//! Unlike `serde_json`, `json.loads` accepts `NaN`, `Infinity` and deep nesting.

use std::collections::HashMap;

use super::json_value::{json_number, push_dict, push_json_string, push_list};
use crate::taint::{self, Taint};

/// A JSON value.
#[derive(Debug, PartialEq, Eq)]
pub enum Json {
    /// A string, decoded.
    Text(String),
    /// A scalar that is not a string, as `json.dumps` writes it.
    Scalar(String),
    /// `[…]`
    List(Vec<Json>),
    /// `{…}`
    Dict(Vec<(String, Json)>),
}

impl Json {
    /// Returns the text that `json.dumps` writes.
    #[must_use]
    pub fn dumps(&self) -> String {
        let mut out = String::new();
        self.write(&mut out);
        out
    }

    fn tainted(self, taint: Taint) -> Self {
        match self {
            Self::Text(text) => Self::Text(taint.taint_text(&text)),
            Self::Scalar(text) => Self::Scalar(taint.taint_text(&text)),
            Self::List(items) => Self::List(items.into_iter().map(|item| item.tainted(taint)).collect()),
            Self::Dict(entries) => Self::Dict(tainted(entries, taint)),
        }
    }

    fn write(&self, out: &mut String) {
        match self {
            Self::Text(text) => push_json_string(out, text),
            Self::Scalar(text) => out.push_str(text),
            Self::List(items) => push_list(out, items, |out, item| item.write(out)),
            Self::Dict(entries) => {
                let entries = entries.iter().map(|(key, value)| (key, value));
                push_dict(out, entries, |out, key| push_json_string(out, key), |out, value: &Self| value.write(out));
            }
        }
    }
}

fn tainted(entries: Vec<(String, Json)>, taint: Taint) -> Vec<(String, Json)> {
    entries.into_iter().map(|(key, value)| (taint.taint_text(&key), value.tainted(taint))).collect()
}

/// Why a text cannot be loaded.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum LoadsError {
    /// The text is not JSON; Python refuses it too.
    #[error("not JSON")]
    NotJson,
    /// An integer has more digits than Python reads.
    #[error("an integer has more than {MAX_INTEGER_DIGITS} digits")]
    LongInteger,
    /// The text is valid JSON, but not an object.
    #[error("not an object")]
    NotAnObject,
    /// The text has half of a surrogate pair. Python accepts it, but UTF-8 cannot encode it.
    #[error("half of a surrogate pair, which no text can hold")]
    LoneSurrogate,
    /// The JSON has more levels than [`MAX_JSON_DEPTH`].
    #[error("nested deeper than {MAX_JSON_DEPTH}")]
    TooDeep,
}

/// The maximum nesting of JSON. Python fails at about 1,000 levels.
pub const MAX_JSON_DEPTH: usize = 500;
/// Python rejects integers with more digits.
const MAX_INTEGER_DIGITS: usize = 4300;

/// Loads the JSON text of an object. If the text has tainted characters, all of the result is
/// tainted.
///
/// # Errors
/// Fails if the text is not an object that `json.loads` accepts, is nested too deeply, or holds
/// half of a surrogate pair.
pub fn loads_object(text: &str) -> Result<Vec<(String, Json)>, LoadsError> {
    let Json::Dict(entries) = loads(&taint::strip(text))? else { return Err(LoadsError::NotAnObject) };
    Ok(match taint::of(text) {
        Some(taint) => tainted(entries, taint),
        None => entries,
    })
}

/// Loads a JSON text without tainted characters.
///
/// # Errors
/// Fails if `json.loads` does not accept it, it is nested too deeply, or holds half of a surrogate pair.
pub fn loads(text: &str) -> Result<Json, LoadsError> {
    loads_with_repeats(text).map(|(json, _)| json)
}

/// Loads a JSON text without tainted characters. Also returns whether an object has a key twice, and so lacks a value.
///
/// # Errors
/// As for [`loads`].
pub fn loads_with_repeats(text: &str) -> Result<(Json, bool), LoadsError> {
    let mut reader = Reader { rest: text, depth: 0, has_lone_surrogate: false, repeats_key: false };
    let value = reader.value()?;
    reader.skip_space();
    match value {
        _ if !reader.rest.is_empty() => Err(LoadsError::NotJson),
        _ if reader.has_lone_surrogate => Err(LoadsError::LoneSurrogate),
        value => Ok((value, reader.repeats_key)),
    }
}

struct Reader<'a> {
    rest: &'a str,
    depth: usize,
    has_lone_surrogate: bool,
    repeats_key: bool,
}

type Read<T> = Result<T, LoadsError>;

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
        self.take(token).then_some(()).ok_or(LoadsError::NotJson)
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

    /// Reads entries. A repeated key keeps its first place and its last value.
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
                Some((_, earlier)) => {
                    *earlier = value;
                    reader.repeats_key = true;
                }
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

    /// Reads items between commas, and the brackets around them.
    fn each(&mut self, open: char, close: char, mut item: impl FnMut(&mut Self) -> Read<()>) -> Read<()> {
        self.expect(open)?;
        self.depth += 1;
        if self.depth > MAX_JSON_DEPTH {
            return Err(LoadsError::TooDeep);
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
            true if is_long_integer(number) => Err(LoadsError::LongInteger),
            true => Ok(json_number(number)),
            false => Err(LoadsError::NotJson),
        }
    }

    fn string(&mut self) -> Read<String> {
        self.take('"').then_some(()).ok_or(LoadsError::NotJson)?;
        let mut text = String::new();
        loop {
            let end = self.rest.find(|c: char| c < ' ' || c == '"' || c == '\\').ok_or(LoadsError::NotJson)?;
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
        let (Some('\\'), Some(kind)) = (chars.next(), chars.next()) else { return Err(LoadsError::NotJson) };
        self.rest = chars.as_str();
        match kind {
            '"' | '\\' | '/' => Ok(kind),
            'b' => Ok('\u{8}'),
            'f' => Ok('\u{c}'),
            'n' => Ok('\n'),
            'r' => Ok('\r'),
            't' => Ok('\t'),
            'u' => self.unicode(),
            _ => Err(LoadsError::NotJson),
        }
    }

    /// Reads the digits after `\u`. They are one unit of UTF-16, or the first of two units.
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
        let digits = digits.ok_or(LoadsError::NotJson)?;
        self.rest = &self.rest[4..];
        u16::from_str_radix(digits, 16).map_err(|_| LoadsError::NotJson)
    }
}

/// Returns true for `-?(0|[1-9]\d*)(\.\d+)?([eE][-+]?\d+)?`
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
    let starts = integer == "0" || !integer.starts_with('0');
    starts && [Some(integer), fraction, exponent].into_iter().flatten().all(is_digits)
}

fn is_long_integer(number: &str) -> bool {
    let digits = number.strip_prefix('-').unwrap_or(number);
    digits.len() > MAX_INTEGER_DIGITS && is_digits(digits)
}

fn is_digits(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit())
}

#[cfg(test)]
mod tests {
    use super::{Json, LoadsError, MAX_JSON_DEPTH, loads_object};

    fn dumped(text: &str) -> Result<String, LoadsError> {
        loads_object(text).map(|entries| Json::Dict(entries).dumps())
    }

    #[test]
    fn loaded_json_is_dumped_like_python() {
        let text = r#" {"a":1, "b" : [NaN,1E5,-0,-Infinity], "a":2, "c":"\ud83e\udee8"} "#;
        let expected = "{\"a\": 2, \"b\": [NaN, 100000.0, 0, -Infinity], \"c\": \"\u{1fae8}\"}";
        assert_eq!(dumped(text).as_deref(), Ok(expected));
    }

    #[test]
    fn invalid_json_maps_to_its_error_variant() {
        assert_eq!(dumped("{"), Err(LoadsError::NotJson));
        assert_eq!(dumped("{\"a\": 01}"), Err(LoadsError::NotJson));
        assert_eq!(dumped("[1]"), Err(LoadsError::NotAnObject));
        assert_eq!(dumped(r#"{"a": "\ud83e"}"#), Err(LoadsError::LoneSurrogate));
        let deep = format!("{{\"a\": {}", "[".repeat(MAX_JSON_DEPTH));
        assert_eq!(dumped(&deep), Err(LoadsError::TooDeep));
    }
}

//! Python's `json.loads`, in one pass over the text.

use super::python::MAX_INT_DIGITS;
use super::value::{Dict, Value, number_of};

/// The maximum nesting of JSON. Python fails at about 1,000 levels.
pub(crate) const MAX_DEPTH: usize = 512;

/// Why a text cannot be loaded.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum LoadsError {
    #[error("not JSON at byte {0}")]
    NotJson(usize),
    #[error("an integer at byte {0} has more digits than {MAX_INT_DIGITS}")]
    LongInteger(usize),
    #[error("nested deeper than {MAX_DEPTH} at byte {0}")]
    TooDeep(usize),
    /// Python accepts half of a surrogate pair, but UTF-8 cannot encode it.
    #[error("half of a surrogate pair at byte {0}, which no text can hold")]
    LoneSurrogate(usize),
}

/// Loads a JSON text as Python does: `NaN` and infinities are numbers, and a repeated key keeps its first place and its
/// last value.
pub(super) fn loads(text: &str) -> Result<Value, LoadsError> {
    let mut reader = Reader { text, rest: text, depth: 0, lone_surrogate: None };
    let value = reader.value()?;
    reader.skip_space();
    if !reader.rest.is_empty() {
        return Err(reader.not_json());
    }
    reader.lone_surrogate.map_or(Ok(value), |at| Err(LoadsError::LoneSurrogate(at)))
}

struct Reader<'a> {
    text: &'a str,
    rest: &'a str,
    depth: usize,
    /// Where the first half of a surrogate pair is.
    lone_surrogate: Option<usize>,
}

type Read<T> = Result<T, LoadsError>;

impl Reader<'_> {
    fn at(&self) -> usize {
        self.text.len() - self.rest.len()
    }

    fn not_json(&self) -> LoadsError {
        LoadsError::NotJson(self.at())
    }

    fn skip_space(&mut self) {
        self.rest = self.rest.trim_start_matches([' ', '\t', '\n', '\r']);
    }

    fn take(&mut self, token: &str) -> bool {
        let rest = self.rest.strip_prefix(token);
        self.rest = rest.unwrap_or(self.rest);
        rest.is_some()
    }

    fn expect(&mut self, token: &str) -> Read<()> {
        self.skip_space();
        if self.take(token) { Ok(()) } else { Err(self.not_json()) }
    }

    fn value(&mut self) -> Read<Value> {
        self.skip_space();
        match self.rest.chars().next() {
            Some('"') => Ok(Value::Text(self.string()?)),
            Some('{') => Ok(Value::Dict(self.entries()?)),
            Some('[') => Ok(Value::List(self.items()?)),
            _ => self.scalar(),
        }
    }

    fn entries(&mut self) -> Read<Dict> {
        let mut entries = Dict::new();
        self.each("{", "}", |reader| {
            reader.skip_space();
            let key = reader.string()?;
            reader.expect(":")?;
            let value = reader.value()?;
            entries.insert(key, value);
            Ok(())
        })?;
        Ok(entries)
    }

    fn items(&mut self) -> Read<Vec<Value>> {
        let mut items = Vec::new();
        self.each("[", "]", |reader| {
            items.push(reader.value()?);
            Ok(())
        })?;
        Ok(items)
    }

    /// Reads items between commas, and the brackets around them.
    fn each(&mut self, open: &str, close: &str, mut item: impl FnMut(&mut Self) -> Read<()>) -> Read<()> {
        self.expect(open)?;
        self.depth += 1;
        if self.depth > MAX_DEPTH {
            return Err(LoadsError::TooDeep(self.at()));
        }
        self.skip_space();
        if !self.take(close) {
            item(self)?;
            while self.expect(",").is_ok() {
                item(self)?;
            }
            self.expect(close)?;
        }
        self.depth -= 1;
        Ok(())
    }

    fn scalar(&mut self) -> Read<Value> {
        let words = [
            ("null", Value::Null),
            ("true", Value::Bool(true)),
            ("false", Value::Bool(false)),
            ("NaN", Value::Float(f64::NAN)),
            ("Infinity", Value::Float(f64::INFINITY)),
            ("-Infinity", Value::Float(f64::NEG_INFINITY)),
        ];
        for (word, value) in words {
            if self.take(word) {
                return Ok(value);
            }
        }
        self.number()
    }

    /// Reads the longest number. A point or an exponent without digits is not part of it.
    fn number(&mut self) -> Read<Value> {
        let (start, whole) = (self.at(), self.rest);
        self.take("-");
        if !self.take("0") && self.digits() == 0 {
            return Err(self.not_json());
        }
        let is_int = !(self.fraction() | self.exponent());
        let number = whole.get(..whole.len() - self.rest.len()).unwrap_or(whole);
        if is_int && number.trim_start_matches('-').len() > MAX_INT_DIGITS {
            return Err(LoadsError::LongInteger(start));
        }
        Ok(number_of(number))
    }

    fn digits(&mut self) -> usize {
        let rest = self.rest.trim_start_matches(|c: char| c.is_ascii_digit());
        let size = self.rest.len() - rest.len();
        self.rest = rest;
        size
    }

    fn fraction(&mut self) -> bool {
        let before = self.rest;
        let is_read = self.take(".") && self.digits() > 0;
        if !is_read {
            self.rest = before;
        }
        is_read
    }

    fn exponent(&mut self) -> bool {
        let before = self.rest;
        let is_read = (self.take("e") || self.take("E")) && {
            let _ = self.take("-") || self.take("+");
            self.digits() > 0
        };
        if !is_read {
            self.rest = before;
        }
        is_read
    }

    fn string(&mut self) -> Read<String> {
        if !self.take("\"") {
            return Err(self.not_json());
        }
        let mut text = String::new();
        loop {
            let stop = self.rest.find(|c: char| c < ' ' || c == '"' || c == '\\').ok_or(self.not_json())?;
            let (run, rest) = self.rest.split_at(stop);
            text.push_str(run);
            self.rest = rest;
            if self.take("\"") {
                return Ok(text);
            }
            text.push(self.escape()?);
        }
    }

    fn escape(&mut self) -> Read<char> {
        let at = self.at();
        let mut chars = self.rest.chars();
        let (Some('\\'), Some(kind)) = (chars.next(), chars.next()) else { return Err(self.not_json()) };
        self.rest = chars.as_str();
        match kind {
            '"' | '\\' | '/' => Ok(kind),
            'b' => Ok('\u{8}'),
            'f' => Ok('\u{c}'),
            'n' => Ok('\n'),
            'r' => Ok('\r'),
            't' => Ok('\t'),
            'u' => self.unicode(at),
            _ => Err(LoadsError::NotJson(at)),
        }
    }

    /// Reads the digits after `\u`. They are one unit of UTF-16, or the first of two units.
    fn unicode(&mut self, at: usize) -> Read<char> {
        let unit = self.unit()?;
        if let Some(c) = char::from_u32(unit.into()) {
            return Ok(c);
        }
        let after = self.rest;
        if (0xd800..0xdc00).contains(&unit) && self.take("\\u") {
            if let Some(Ok(c)) = char::decode_utf16([unit, self.unit()?]).next() {
                return Ok(c);
            }
            self.rest = after;
        }
        self.lone_surrogate.get_or_insert(at);
        Ok(char::REPLACEMENT_CHARACTER)
    }

    fn unit(&mut self) -> Read<u16> {
        let digits = self.rest.get(..4).filter(|digits| digits.bytes().all(|b| b.is_ascii_hexdigit()));
        let unit = digits.and_then(|digits| u16::from_str_radix(digits, 16).ok()).ok_or(self.not_json())?;
        self.rest = self.rest.get(4..).unwrap_or_default();
        Ok(unit)
    }
}

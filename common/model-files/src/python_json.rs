//! Python's dialect of JSON, in which transformers writes and reads a model's files, rewritten to the
//! standard's.
//!
//! Python also reads `NaN`, `Infinity` and `-Infinity`, numbers beyond the range of doubles as
//! infinite, and an escaped surrogate without its other half. Its other rules are those of the
//! standard. Of a key that an object has twice, both keep the last value.

use std::borrow::Cow;
use std::ops::Range;

use serde::de::DeserializeOwned;

/// The numbers that only Python reads, and a number of the standard that is not finite either. No
/// number of the standard is NaN: a reader that needs a finite number refuses both.
const NUMBERS: [(&[u8], &[u8]); 3] = [(b"NaN", b"1e999"), (b"Infinity", b"1e999"), (b"-Infinity", b"-1e999")];
/// Unicode's replacement character. A half of a surrogate pair has no place in Rust's strings, and
/// transformers fails to encode or render it.
const REPLACEMENT: &[u8] = b"\\ufffd";
/// The length of an escaped UTF-16 unit, such as `\ud800`.
const ESCAPE_BYTES: usize = 6;
/// The mark that some editors write before a text. Python refuses it, but it changes nothing.
const BYTE_ORDER_MARK: &[u8] = b"\xEF\xBB\xBF";

/// Parses JSON as Python's `json` reads it.
pub(crate) fn parse<T: DeserializeOwned>(text: &[u8]) -> serde_json::Result<T> {
    serde_json::from_slice(&standard(text))
}

/// Returns JSON of the standard with the values that Python reads. A text that is invalid in both
/// stays invalid.
pub(crate) fn standard(text: &[u8]) -> Cow<'_, [u8]> {
    let text = text.strip_prefix(BYTE_ORDER_MARK).unwrap_or(text);
    let (mut out, mut copied) = (Vec::new(), 0);
    for (range, replacement) in (Extras { text, at: 0, is_string: false }) {
        out.extend_from_slice(&text[copied..range.start]);
        out.extend_from_slice(replacement);
        copied = range.end;
    }
    if copied == 0 {
        return Cow::Borrowed(text);
    }
    out.extend_from_slice(&text[copied..]);
    Cow::Owned(out)
}

/// The places of a text that only Python reads, with their replacements, in order.
struct Extras<'a> {
    text: &'a [u8],
    at: usize,
    is_string: bool,
}

impl Iterator for Extras<'_> {
    type Item = (Range<usize>, &'static [u8]);

    fn next(&mut self) -> Option<Self::Item> {
        while let Some(&byte) = self.text.get(self.at) {
            let start = self.at;
            self.at += 1;
            let found = match byte {
                b'"' => {
                    self.is_string = !self.is_string;
                    None
                }
                b'\\' if self.is_string => self.skip_escape(start).then_some(REPLACEMENT),
                b'N' | b'I' | b'-' if !self.is_string => self.skip_number(start),
                _ => None,
            };
            if let Some(replacement) = found {
                return Some((start..self.at, replacement));
            }
        }
        None
    }
}

impl Extras<'_> {
    /// Moves behind a number that only Python reads. Returns its replacement.
    fn skip_number(&mut self, start: usize) -> Option<&'static [u8]> {
        let (length, replacement) = number(self.text, start)?;
        self.at = start + length;
        Some(replacement)
    }

    /// Moves behind the escape at `start`. Returns true if it is a surrogate without its other half.
    fn skip_escape(&mut self, start: usize) -> bool {
        let unit = escaped_unit(self.text, start);
        self.at = start + unit.map_or(2, |_| ESCAPE_BYTES);
        match unit {
            Some(0xD800..=0xDBFF) => {
                let is_pair = matches!(escaped_unit(self.text, self.at), Some(0xDC00..=0xDFFF));
                self.at += if is_pair { ESCAPE_BYTES } else { 0 };
                !is_pair
            }
            Some(0xDC00..=0xDFFF) => true,
            _ => false,
        }
    }
}

/// Returns the UTF-16 unit of an escape such as `\ud800`.
fn escaped_unit(text: &[u8], start: usize) -> Option<u16> {
    let digits = text.get(start..start + ESCAPE_BYTES)?.strip_prefix(b"\\u")?;
    let is_hex = digits.iter().all(u8::is_ascii_hexdigit);
    is_hex.then(|| u16::from_str_radix(std::str::from_utf8(digits).ok()?, 16).ok()).flatten()
}

/// Returns the length and the replacement of a number that only Python reads. What follows must end
/// a value, so that the replacement does not complete an invalid one.
fn number(text: &[u8], start: usize) -> Option<(usize, &'static [u8])> {
    let is_before = |byte: &u8| matches!(byte, b'[' | b',' | b':') || byte.is_ascii_whitespace();
    let is_after = |byte: &u8| matches!(byte, b']' | b',' | b'}') || byte.is_ascii_whitespace();
    let is_start = start.checked_sub(1).is_none_or(|before| is_before(&text[before]));
    let (name, replacement) = NUMBERS.iter().find(|(name, _)| text[start..].starts_with(name))?;
    let is_end = text.get(start + name.len()).is_none_or(is_after);
    (is_start && is_end).then_some((name.len(), *replacement))
}

#[cfg(test)]
mod tests {
    use serde_json::Value;

    use super::{parse, standard};

    /// Returns the value as the standard writes it. None for an invalid text.
    fn read(text: &str) -> Option<String> {
        Some(parse::<Value>(text.as_bytes()).ok()?.to_string())
    }

    /// Values of `json.loads` in Python 3.11; its surrogates are U+FFFD here.
    #[test]
    fn json_has_the_values_that_python_reads() {
        let cases = [
            ("[NaN,Infinity , -Infinity]", r#"[1e+999,1e+999,-1e+999]"#),
            ("{\"a\":\tNaN}", r#"{"a":1e+999}"#),
            (r#"["NaN, Infinity", "\"", NaN, "\\", NaN]"#, r#"["NaN, Infinity","\"",1e+999,"\\",1e+999]"#),
            (
                r#"["\ud800", "\udc00\ud800", "\ud83d\ude00", "\uD800\u0041"]"#,
                "[\"\u{fffd}\",\"\u{fffd}\u{fffd}\",\"😀\",\"\u{fffd}A\"]",
            ),
            (r#"["\\ud800", "\u00e9", "\ud83d\\ude00"]"#, "[\"\\\\ud800\",\"é\",\"\u{fffd}\\\\ude00\"]"),
            ("\u{feff}{\"a\": 1}", r#"{"a":1}"#),
            (r#"{"a": 1, "b": 2, "a": {"x": 1}}"#, r#"{"a":{"x":1},"b":2}"#),
            ("[1e999, 1e400, 123456789012345678901234567890]", "[1e+999,1e+400,123456789012345678901234567890]"),
            ("NaN", "1e+999"),
        ];
        for (text, expected) in cases {
            assert_eq!(read(text).as_deref(), Some(expected), "{text}");
        }
    }

    #[test]
    fn json_that_python_refuses_stays_invalid() {
        let cases = [
            "[nan]",
            "[-NaN]",
            "[+Infinity]",
            "[1NaN]",
            "[Infinity1]",
            "[NaN.0]",
            "{NaN: 1}",
            "[Inf]",
            "[--Infinity]",
            r#"["\ud80"]"#,
            r#"["\uzzzz"]"#,
            r#"["\x41"]"#,
            "[01]",
            "[1.]",
            "[.5]",
            "['a']",
            "[1,]",
            "{\"a\":1,}",
            "",
            "[\"\n\"]",
            "[1]]",
        ];
        for text in cases {
            assert_eq!(read(text), None, "{text}");
        }
    }

    #[test]
    fn json_of_the_standard_is_not_copied() {
        let text = br#"{"a": [-1.5e3, "-Infinity \"NaN\" \\", null]}"#;
        assert!(matches!(standard(text), std::borrow::Cow::Borrowed(same) if same == text));
    }
}

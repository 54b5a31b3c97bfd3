//! JSON values as Python writes them. Many official prompts are made of `json.dumps` and `str`, so their spelling of numbers,
//! separators and quotes is part of the prompt.

use std::fmt::Write as _;

use serde_json::{Map, Value};
use tandem_template::marks;

/// `json.dumps(value, ensure_ascii=False)`.
#[must_use]
pub fn json(value: &Value) -> String {
    JSON.write(value)
}

/// `str(value)`, which is what `"{}".format(value)` writes.
#[must_use]
pub fn text(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        other => REPR.write(other),
    }
}

/// `bool(value)`: nothing, zero and empty things are false.
#[must_use]
pub fn is_true(value: &Value) -> bool {
    match value {
        Value::Null => false,
        Value::Bool(truth) => *truth,
        Value::Number(number) => number.as_f64() != Some(0.0),
        Value::String(text) => !text.is_empty(),
        Value::Array(items) => !items.is_empty(),
        Value::Object(entries) => !entries.is_empty(),
    }
}

/// A JSON number as `json.dumps(json.loads(number))` writes it.
#[must_use]
pub fn json_number(number: &str) -> String {
    JSON.number(number)
}

/// What `json.dumps` and `repr` do differently; brackets and separators are the same.
struct Style {
    null: &'static str,
    truth: [&'static str; 2],
    infinity: &'static str,
    quote: fn(&mut String, &str),
}

const JSON: Style = Style { null: "null", truth: ["false", "true"], infinity: "Infinity", quote: quote_json };
const REPR: Style = Style { null: "None", truth: ["False", "True"], infinity: "inf", quote: quote_repr };

impl Style {
    fn write(&self, value: &Value) -> String {
        let mut out = String::new();
        self.value(&mut out, value);
        out
    }

    fn value(&self, out: &mut String, value: &Value) {
        match value {
            Value::Null => out.push_str(self.null),
            Value::Bool(truth) => out.push_str(self.truth[usize::from(*truth)]),
            Value::Number(number) => out.push_str(&self.number(&number.to_string())),
            Value::String(text) => (self.quote)(out, text),
            Value::Array(items) => self.list(out, items),
            Value::Object(entries) => self.dict(out, entries),
        }
    }

    fn list(&self, out: &mut String, items: &[Value]) {
        out.push('[');
        for (i, item) in items.iter().enumerate() {
            out.push_str(if i == 0 { "" } else { ", " });
            self.value(out, item);
        }
        out.push(']');
    }

    fn dict(&self, out: &mut String, entries: &Map<String, Value>) {
        out.push('{');
        for (i, (key, value)) in entries.iter().enumerate() {
            out.push_str(if i == 0 { "" } else { ", " });
            (self.quote)(out, key);
            out.push_str(": ");
            self.value(out, value);
        }
        out.push('}');
    }

    /// Integers of any size stay as they are; a number with a point or an exponent is a float.
    fn number(&self, number: &str) -> String {
        match number.parse::<f64>() {
            Ok(float) if number.contains(['.', 'e', 'E']) => self.float(float),
            _ if number == "-0" => "0".to_owned(),
            _ => number.to_owned(),
        }
    }

    /// The shortest digits that read back as the same float; with an exponent below 1e-4 and from 1e16 on.
    fn float(&self, float: f64) -> String {
        if float.is_infinite() {
            let sign = if float < 0.0 { "-" } else { "" };
            return format!("{sign}{}", self.infinity);
        }
        let scientific = format!("{float:e}");
        let (digits, exponent) = scientific.split_once('e').unwrap_or((&scientific, "0"));
        match exponent.parse::<i32>() {
            Ok(-4..16) => format!("{float:?}"),
            Ok(exponent) => format!("{digits}e{exponent:+03}"),
            Err(_) => scientific,
        }
    }
}

/// Appends a string as `json.dumps` quotes it.
pub fn quote_json(out: &mut String, text: &str) {
    out.push('"');
    marks::append(out, text, escape_json);
    out.push('"');
}

fn escape_json(out: &mut String, text: &str) {
    for c in text.chars() {
        match c {
            '"' => out.push_str("\\\""),
            '\\' => out.push_str("\\\\"),
            '\n' => out.push_str("\\n"),
            '\r' => out.push_str("\\r"),
            '\t' => out.push_str("\\t"),
            '\u{8}' => out.push_str("\\b"),
            '\u{c}' => out.push_str("\\f"),
            '\0'..' ' => hex(out, 'u', 4, c),
            _ => out.push(c),
        }
    }
}

/// Single quotes, unless that would need an escape and double quotes would not.
fn quote_repr(out: &mut String, text: &str) {
    let plain = marks::plain(text);
    let quote = if plain.contains('\'') && !plain.contains('"') { '"' } else { '\'' };
    out.push(quote);
    marks::append(out, text, |out, text| escape_repr(out, text, quote));
    out.push(quote);
}

fn escape_repr(out: &mut String, text: &str, quote: char) {
    for c in text.chars() {
        match c {
            '\\' => out.push_str("\\\\"),
            '\n' => out.push_str("\\n"),
            '\r' => out.push_str("\\r"),
            '\t' => out.push_str("\\t"),
            _ if c == quote => out.extend(['\\', c]),
            _ if is_printable(c) => out.push(c),
            ..='\u{ff}' => hex(out, 'x', 2, c),
            ..='\u{ffff}' => hex(out, 'u', 4, c),
            _ => hex(out, 'U', 8, c),
        }
    }
}

fn hex(out: &mut String, kind: char, width: usize, c: char) {
    // Writing to a String does not fail.
    let _ = write!(out, "\\{kind}{:0width$x}", u32::from(c));
}

/// `str.isprintable`. Rust escapes the same Unicode categories in its own debug output, and combining marks only at the start of a
/// string: hence the letter before.
fn is_printable(c: char) -> bool {
    let after_a_letter: String = ['a', c].iter().collect();
    matches!(c, '"' | '\'') || after_a_letter.escape_debug().eq(after_a_letter.chars())
}

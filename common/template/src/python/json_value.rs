//! Python's `str`, `repr`, `bool` and `json.dumps` of a `serde_json` value.
//!
//! Many official prompts are made of `json.dumps` and `str`, so their spelling of numbers,
//! separators and quotes is part of the prompt. Their output for tainted text is tainted.

use serde_json::{Map, Value};

use super::json::{float_text, write_escaped};
use super::number::float_repr;
use super::repr::{push_quoted, quote_for};
use super::text;
use crate::taint;

/// Returns `json.dumps(value, ensure_ascii=False)`.
#[must_use]
pub fn dumps(value: &Value) -> String {
    JSON.write(value)
}

/// Returns `str(value)`, which is also what `"{}".format(value)` writes.
#[must_use]
pub fn to_str(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        other => REPR.write(other),
    }
}

/// Returns `bool(value)`: null, zero and empty values are false.
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

/// Returns `text.strip()`: the text without white space at both ends.
#[must_use]
pub fn strip(text: &str) -> &str {
    text::strip(text, None, true, true)
}

/// Returns `text.rstrip()`: the text without white space at its end.
#[must_use]
pub fn rstrip(text: &str) -> &str {
    text::strip(text, None, false, true)
}

/// Where `json.dumps` and `repr` differ; brackets and separators are the same.
struct Style {
    null: &'static str,
    truth: [&'static str; 2],
    float: fn(f64) -> String,
    quote: fn(&mut String, &str),
}

const JSON: Style = Style { null: "null", truth: ["false", "true"], float: float_text, quote: push_json_string };
const REPR: Style = Style { null: "None", truth: ["False", "True"], float: float_repr, quote: push_repr };

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
            Value::Number(number) => self.number(out, number.as_str()),
            Value::String(text) => (self.quote)(out, text),
            Value::Array(items) => push_list(out, items, |out, item| self.value(out, item)),
            Value::Object(entries) => self.dict(out, entries),
        }
    }

    fn dict(&self, out: &mut String, entries: &Map<String, Value>) {
        let write_key = |out: &mut String, key: &String| (self.quote)(out, key);
        push_dict(out, entries, write_key, |out, value| self.value(out, value));
    }

    /// Writes integers of any size as they are; a number with a point or an exponent is a float.
    fn number(&self, out: &mut String, number: &str) {
        match number.parse::<f64>() {
            Ok(float) if number.contains(['.', 'e', 'E']) => out.push_str(&(self.float)(float)),
            _ if number == "-0" => out.push('0'),
            _ => out.push_str(number),
        }
    }
}

/// Returns a JSON number as `json.dumps(json.loads(number))` writes it.
pub(super) fn json_number(number: &str) -> String {
    let mut out = String::new();
    JSON.number(&mut out, number);
    out
}

/// Appends a string as `json.dumps` quotes it.
pub fn push_json_string(out: &mut String, text: &str) {
    out.push('"');
    let Ok(()) = taint::write(out, text, |out, run| write_escaped(out, run, false));
    out.push('"');
}

/// Appends a list, with every item written by `write`.
pub(super) fn push_list<T>(
    out: &mut String,
    items: impl IntoIterator<Item = T>,
    mut write: impl FnMut(&mut String, T),
) {
    out.push('[');
    for (at, item) in items.into_iter().enumerate() {
        out.push_str(if at == 0 { "" } else { ", " });
        write(out, item);
    }
    out.push(']');
}

/// Appends a dict, with every key and value written by its function.
pub(super) fn push_dict<K, V>(
    out: &mut String,
    entries: impl IntoIterator<Item = (K, V)>,
    mut write_key: impl FnMut(&mut String, K),
    mut write_value: impl FnMut(&mut String, V),
) {
    out.push('{');
    for (at, (key, value)) in entries.into_iter().enumerate() {
        out.push_str(if at == 0 { "" } else { ", " });
        write_key(out, key);
        out.push_str(": ");
        write_value(out, value);
    }
    out.push('}');
}

fn push_repr(out: &mut String, text: &str) {
    let quote = quote_for(&taint::strip(text));
    out.push_str(quote);
    taint::append(out, text, |out, run| run.chars().for_each(|c| push_quoted(out, c, quote)));
    out.push_str(quote);
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::{dumps, is_true, rstrip, strip, to_str};

    fn parsed(text: &str) -> Value {
        serde_json::from_str(text).unwrap_or_default()
    }

    #[test]
    fn json_is_written_like_json_dumps() {
        let value = parsed(r#"{"a":[1.0,1e22,null,true,1e999,-0],"é":"\u0001\u2028\""}"#);
        let expected = "{\"a\": [1.0, 1e+22, null, true, Infinity, 0], \"é\": \"\\u0001\u{2028}\\\"\"}";
        assert_eq!(dumps(&value), expected);
    }

    #[test]
    fn values_are_written_like_str() {
        let value = parsed(r#"[1.50,1e-5,null,false,"it's","a\"'\n",{"k":1e999}]"#);
        assert_eq!(to_str(&value), r#"[1.5, 1e-05, None, False, "it's", 'a"\'\n', {'k': inf}]"#);
        assert_eq!(to_str(&json!("it's")), "it's");
    }

    #[test]
    fn empty_values_are_false() {
        for value in ["null", "false", "0", "-0.0", "\"\"", "[]", "{}"] {
            assert!(!is_true(&parsed(value)), "{value}");
        }
        assert!(is_true(&parsed("[0]")));
    }

    #[test]
    fn strip_removes_the_white_space_of_python() {
        assert_eq!(strip("\x1c\u{a0} a \x1f"), "a");
        assert_eq!(rstrip(" a\u{2003}"), " a");
    }
}

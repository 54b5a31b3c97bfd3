//! `json.dumps`, as the `tojson` filter of transformers calls it.

use std::borrow::Cow;

use minijinja::Value;

use super::{number, order};
use crate::error::{Fallible, fail};
use crate::taint;
use crate::text_buffer::{Sink, TextBuffer};
use crate::value::{PyObject, PyValue, py_value, type_name};

/// The options of `json.dumps`.
#[derive(Debug)]
pub(crate) struct Style<'a> {
    pub(crate) ensure_ascii: bool,
    /// The indentation of one level; nothing for one line.
    pub(crate) indent: Option<Cow<'a, str>>,
    pub(crate) item_separator: Cow<'a, str>,
    pub(crate) key_separator: Cow<'a, str>,
    pub(crate) sort_keys: bool,
}

/// Returns the JSON text of a value.
pub(crate) fn dumps(value: &Value, style: &Style<'_>) -> Fallible<String> {
    let mut writer = Writer { out: TextBuffer::new(), style, depth: 0 };
    writer.value(value)?;
    Ok(writer.out.finish())
}

struct Writer<'a> {
    out: TextBuffer,
    style: &'a Style<'a>,
    depth: usize,
}

impl Writer<'_> {
    fn value(&mut self, value: &Value) -> Fallible<()> {
        match py_value(value) {
            PyValue::None => self.out.push("null"),
            PyValue::Bool(true) => self.out.push("true"),
            PyValue::Bool(false) => self.out.push("false"),
            PyValue::Int(int) => self.out.push(&int.to_string()),
            PyValue::Float(float) => self.out.push(&float_text(float)),
            PyValue::Str(text) => self.string(text),
            PyValue::Undefined(_) => not_serializable(value),
            PyValue::Object(PyObject::Seq(seq)) => self.list(seq.items()),
            PyValue::Object(PyObject::Dict(dict)) => self.dict(dict.entries()),
            PyValue::Object(PyObject::BigInt(big)) => self.out.push(&number::int_to_str(big.digits())?),
            PyValue::Object(_) => not_serializable(value),
        }
    }

    fn list(&mut self, items: &[Value]) -> Fallible<()> {
        if items.is_empty() {
            return self.out.push("[]");
        }
        self.open("[")?;
        for (at, item) in items.iter().enumerate() {
            self.separate(at)?;
            self.value(item)?;
        }
        self.close("]")
    }

    fn dict(&mut self, entries: &[(Value, Value)]) -> Fallible<()> {
        if entries.is_empty() {
            return self.out.push("{}");
        }
        self.open("{")?;
        for (at, (key, item)) in self.sorted(entries)?.iter().enumerate() {
            self.separate(at)?;
            self.key(key)?;
            self.out.push(&self.style.key_separator)?;
            self.value(item)?;
        }
        self.close("}")
    }

    fn sorted<'e>(&self, entries: &'e [(Value, Value)]) -> Fallible<Cow<'e, [(Value, Value)]>> {
        if !self.style.sort_keys {
            return Ok(Cow::Borrowed(entries));
        }
        let keyed = entries.iter().enumerate().map(|(at, (key, _))| (key.clone(), Value::from(at))).collect();
        let order = order::sort(keyed, false)?;
        let order = order.iter().filter_map(Value::as_usize).filter_map(|at| entries.get(at).cloned());
        Ok(Cow::Owned(order.collect()))
    }

    fn key(&mut self, key: &Value) -> Fallible<()> {
        match py_value(key) {
            PyValue::Str(text) => self.string(text),
            PyValue::None => self.string("null"),
            PyValue::Bool(true) => self.string("true"),
            PyValue::Bool(false) => self.string("false"),
            PyValue::Int(int) => self.string(&int.to_string()),
            PyValue::Float(float) => self.string(&float_text(float)),
            PyValue::Object(PyObject::BigInt(big)) => self.string(&number::int_to_str(big.digits())?),
            _ => Err(fail(format!("keys must be str, int, float, bool or None, not {}", type_name(key)))),
        }
    }

    fn open(&mut self, bracket: &str) -> Fallible<()> {
        self.depth += 1;
        self.out.push(bracket)?;
        self.new_line()
    }

    fn close(&mut self, bracket: &str) -> Fallible<()> {
        self.depth -= 1;
        self.new_line()?;
        self.out.push(bracket)
    }

    fn separate(&mut self, at: usize) -> Fallible<()> {
        if at == 0 {
            return Ok(());
        }
        self.out.push(&self.style.item_separator)?;
        self.new_line()
    }

    fn new_line(&mut self) -> Fallible<()> {
        let Some(indent) = &self.style.indent else {
            return Ok(());
        };
        self.out.push("\n")?;
        for _ in 0..self.depth {
            self.out.push(indent)?;
        }
        Ok(())
    }

    fn string(&mut self, text: &str) -> Fallible<()> {
        self.out.push("\"")?;
        taint::write(&mut self.out, text, |out, text| write_escaped(out, text, self.style.ensure_ascii))?;
        self.out.push("\"")
    }
}

/// Writes the inside of a JSON string.
pub(super) fn write_escaped<S: Sink>(out: &mut S, text: &str, ensure_ascii: bool) -> Result<(), S::Error> {
    let mut rest = text;
    while let Some(at) = rest.find(|c| needs_escape(c, ensure_ascii)) {
        out.push(&rest[..at])?;
        let mut chars = rest[at..].chars();
        if let Some(c) = chars.next() {
            out.push(&escaped(c))?;
        }
        rest = chars.as_str();
    }
    out.push(rest)
}

fn needs_escape(c: char, ensure_ascii: bool) -> bool {
    c < ' ' || c == '"' || c == '\\' || (ensure_ascii && !(' '..='~').contains(&c))
}

fn escaped(c: char) -> String {
    match c {
        '"' => "\\\"".to_owned(),
        '\\' => "\\\\".to_owned(),
        '\n' => "\\n".to_owned(),
        '\r' => "\\r".to_owned(),
        '\t' => "\\t".to_owned(),
        '\x08' => "\\b".to_owned(),
        '\x0c' => "\\f".to_owned(),
        c => c.encode_utf16(&mut [0; 2]).iter().map(|unit| format!("\\u{unit:04x}")).collect(),
    }
}

/// Returns a float as `json.dumps` writes it.
pub(super) fn float_text(float: f64) -> String {
    match float {
        float if float.is_nan() => "NaN".to_owned(),
        f64::INFINITY => "Infinity".to_owned(),
        f64::NEG_INFINITY => "-Infinity".to_owned(),
        float => number::float_repr(float),
    }
}

fn not_serializable(value: &Value) -> Fallible<()> {
    Err(fail(format!("Object of type {} is not JSON serializable", type_name(value))))
}

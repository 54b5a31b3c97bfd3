//! `str(value)`, `repr(value)` and `ascii`.

use minijinja::Value;

use super::number;
use crate::error::{Fallible, Limit, limit};
use crate::interpreter::Interpreter;
use crate::text_buffer::TextBuffer;
use crate::value::{self, Builtin, GeneratorKind, PyObject, PyValue, Seq, SeqKind, ViewKind, py_value, type_name};
use crate::{budget, taint, unicode};

/// Returns the result of Python's `str(value)`.
pub(crate) fn to_str(interpreter: &mut dyn Interpreter, value: &Value) -> Fallible<String> {
    match py_value(value) {
        PyValue::Str(text) => {
            budget::alloc(text.len())?;
            Ok(text.to_owned())
        }
        PyValue::Undefined(_) => Ok(String::new()),
        PyValue::Object(PyObject::Loop(object)) => {
            Ok(format!("<LoopContext {}/{}>", object.index(), object.length(interpreter)?))
        }
        _ => repr(value),
    }
}

/// Returns Python's `str(value)` in code where no loop can be printed.
pub(crate) fn to_plain_str(value: &Value) -> Fallible<String> {
    match py_value(value) {
        PyValue::Str(text) => {
            budget::alloc(text.len())?;
            Ok(text.to_owned())
        }
        PyValue::Undefined(_) => Ok(String::new()),
        _ => repr(value),
    }
}

/// Returns the result of Python's `repr(value)`.
pub(crate) fn repr(value: &Value) -> Fallible<String> {
    let mut out = TextBuffer::new();
    write(&mut out, value, 0)?;
    Ok(out.finish())
}

/// Represents an address in memory, which differs from run to run in Python.
const ADDRESS: &str = "0x7f0000000000";

/// The maximum nesting that is printed. A limit is needed, because a namespace may contain itself.
const MAX_DEPTH: u16 = value::MAX_NESTING + 1;

fn write(out: &mut TextBuffer, value: &Value, depth: u16) -> Fallible<()> {
    if depth > MAX_DEPTH {
        return Err(limit(Limit::Nesting));
    }
    match py_value(value) {
        PyValue::None => out.push("None"),
        PyValue::Bool(true) => out.push("True"),
        PyValue::Bool(false) => out.push("False"),
        PyValue::Int(int) => out.push(&int.to_string()),
        PyValue::Float(float) => out.push(&number::float_repr(float)),
        PyValue::Str(text) if value.is_safe() => {
            out.push("Markup(")?;
            write_quoted(out, text)?;
            out.push(")")
        }
        PyValue::Str(text) => write_quoted(out, text),
        PyValue::Undefined(_) => out.push("Undefined"),
        PyValue::Object(object) => write_object(out, value, object, depth),
    }
}

fn write_object(out: &mut TextBuffer, value: &Value, object: &PyObject, depth: u16) -> Fallible<()> {
    match object {
        PyObject::Seq(seq) => write_seq(out, seq, depth),
        PyObject::Dict(dict) => write_entries(out, dict.entries(), depth),
        PyObject::View(view) => {
            let name = match view.kind() {
                ViewKind::Keys => "dict_keys(",
                ViewKind::Values => "dict_values(",
                ViewKind::Items => "dict_items(",
            };
            out.push(name)?;
            let items = value::to_vec(value)?;
            write_items(out, &items, "[", "]", depth)?;
            out.push(")")
        }
        PyObject::Range(range) if range.step() == 1 => out.push(&format!("range({}, {})", range.start(), range.stop())),
        PyObject::Range(range) => out.push(&format!("range({}, {}, {})", range.start(), range.stop(), range.step())),
        PyObject::BigInt(big) => out.push(&number::int_to_str(big.digits())?),
        PyObject::Namespace(namespace) => {
            out.push("<Namespace ")?;
            write_entries(out, &namespace.attributes(), depth)?;
            out.push(">")
        }
        PyObject::Macro(object) => match &object.spec().name {
            Some(name) => out.push(&format!("<Macro '{name}'>")),
            None => out.push("<Macro anonymous>"),
        },
        PyObject::Loop(object) => out.push(&format!("<LoopContext {}/?>", object.index())),
        PyObject::Method(method) => {
            let owner = type_name(&method.receiver);
            out.push(&format!("<built-in method {} of {owner} object at {ADDRESS}>", method.name))
        }
        PyObject::Generator(generator) => match generator.kind() {
            GeneratorKind::Function(name) => out.push(&format!("<generator object {name} at {ADDRESS}>")),
            GeneratorKind::Type(name) => out.push(&format!("<{name} object at {ADDRESS}>")),
        },
        PyObject::Builtin(builtin) => out.push(&builtin_repr(*builtin)),
        PyObject::Template(_) => out.push("<TemplateReference None>"),
        PyObject::Block(_) => out.push(&format!("<jinja2.runtime.BlockReference object at {ADDRESS}>")),
        PyObject::Counter(_) => out.push(&format!("<jinja2.utils.{} object at {ADDRESS}>", type_name(value))),
        _ => out.push(&format!("<{} object>", type_name(value))),
    }
}

fn builtin_repr(builtin: Builtin) -> String {
    const MODULE: &str = "transformers.utils.chat_template_utils";
    const LOCALS: &str = "_cached_compile_jinja_template.<locals>";
    match builtin {
        Builtin::Namespace => format!("<class '{MODULE}.{LOCALS}.TemplateNamespace'>"),
        Builtin::Dict => format!("<{MODULE}.{LOCALS}.TemplateDict object at {ADDRESS}>"),
        Builtin::Cycler => "<class 'jinja2.utils.Cycler'>".to_owned(),
        Builtin::Joiner => "<class 'jinja2.utils.Joiner'>".to_owned(),
        Builtin::Range => format!("<function safe_range at {ADDRESS}>"),
        Builtin::Lipsum => format!("<function generate_lorem_ipsum at {ADDRESS}>"),
        Builtin::RaiseException => format!("<function {LOCALS}.raise_exception at {ADDRESS}>"),
        Builtin::StrftimeNow => format!("<function {LOCALS}.strftime_now at {ADDRESS}>"),
    }
}

fn write_seq(out: &mut TextBuffer, seq: &Seq, depth: u16) -> Fallible<()> {
    match (seq.kind(), seq.items().len()) {
        (SeqKind::List, _) => write_items(out, seq.items(), "[", "]", depth),
        (_, 1) => write_items(out, seq.items(), "(", ",)", depth),
        _ => write_items(out, seq.items(), "(", ")", depth),
    }
}

fn write_items(out: &mut TextBuffer, items: &[Value], open: &str, close: &str, depth: u16) -> Fallible<()> {
    out.push(open)?;
    for (at, item) in items.iter().enumerate() {
        if at > 0 {
            out.push(", ")?;
        }
        write(out, item, depth + 1)?;
    }
    out.push(close)
}

fn write_entries(out: &mut TextBuffer, entries: &[(Value, Value)], depth: u16) -> Fallible<()> {
    out.push("{")?;
    for (at, (key, item)) in entries.iter().enumerate() {
        if at > 0 {
            out.push(", ")?;
        }
        write(out, key, depth + 1)?;
        out.push(": ")?;
        write(out, item, depth + 1)?;
    }
    out.push("}")
}

const QUOTED_PIECE_BYTES: usize = 4096;

/// Writes a text in quotes, with characters escaped that cannot be printed.
pub(crate) fn write_quoted(out: &mut TextBuffer, text: &str) -> Fallible<()> {
    budget::walk(text.len())?;
    let quote = quote_for(&taint::strip(text));
    out.push(quote)?;
    taint::write(out, text, |out, text| {
        let mut quoted = String::with_capacity(text.len().min(QUOTED_PIECE_BYTES));
        for c in text.chars() {
            push_quoted(&mut quoted, c, quote);
            if quoted.len() >= QUOTED_PIECE_BYTES {
                out.push(&quoted)?;
                quoted.clear();
            }
        }
        out.push(&quoted)
    })?;
    out.push(quote)
}

/// Returns the quotes around a text: single quotes, unless they would need an escape and double
/// quotes would not.
pub(super) fn quote_for(text: &str) -> &'static str {
    if text.contains('\'') && !text.contains('"') { "\"" } else { "'" }
}

/// Appends a character of a quoted text, escaped if it cannot be printed.
pub(super) fn push_quoted(out: &mut String, c: char, quote: &str) {
    match c {
        '\\' => out.push_str("\\\\"),
        '\n' => out.push_str("\\n"),
        '\r' => out.push_str("\\r"),
        '\t' => out.push_str("\\t"),
        c if quote.contains(c) => out.extend(['\\', c]),
        c if unicode::is_printable(c) => out.push(c),
        c => push_escape(out, c),
    }
}

fn push_escape(out: &mut String, c: char) {
    let code = u32::from(c);
    let (kind, digits) = match code {
        ..=0xff => ('x', 2),
        0x100..=0xffff => ('u', 4),
        _ => ('U', 8),
    };
    out.extend(['\\', kind]);
    out.extend((0..digits).rev().filter_map(|at| char::from_digit(code >> (4 * at) & 15, 16)));
}

/// Returns Python's `ascii`, given the `repr`.
pub(crate) fn ascii(text: &str) -> Fallible<String> {
    let mut out = TextBuffer::new();
    budget::walk(text.len())?;
    taint::write(&mut out, text, |out, text| {
        for c in text.chars() {
            let mut escaped = String::new();
            if c.is_ascii() {
                escaped.push(c)
            } else {
                push_escape(&mut escaped, c)
            }
            out.push(&escaped)?;
        }
        Ok(())
    })?;
    Ok(out.finish())
}

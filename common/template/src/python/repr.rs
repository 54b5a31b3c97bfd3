//! `str(value)`, `repr(value)` and HTML escapes.

use minijinja::Value;

use super::super::budget;
use super::super::error::{Fallible, Limit, limit};
use super::super::machine::Machine;
use super::super::marks;
use super::super::unicode;
use super::super::value::{self, Builtin, GeneratorKind, Obj, Py, Seq, SeqKind, ViewKind, byte_of, py, type_name};
use super::number;

/// Text that is being written, which may not outgrow the budget.
///
/// A long text is kept in pieces until it is whole: a single growing one would be copied from place to place, and take
/// twice the room.
pub(crate) struct Text {
    full: Vec<String>,
    last: String,
}

/// The size of a piece.
const PIECE: usize = 4 * 1024 * 1024;

impl Text {
    pub(crate) fn new() -> Self {
        Self { full: Vec::new(), last: String::new() }
    }

    pub(crate) fn push(&mut self, part: &str) -> Fallible<()> {
        budget::alloc(part.len())?;
        if self.last.len() + part.len() > PIECE && !self.last.is_empty() {
            let next = String::with_capacity(PIECE.max(part.len()));
            self.full.push(std::mem::replace(&mut self.last, next));
        }
        self.last.push_str(part);
        Ok(())
    }

    pub(crate) fn finish(self) -> String {
        if self.full.is_empty() {
            return self.last;
        }
        let len = self.full.iter().map(String::len).sum::<usize>() + self.last.len();
        let mut whole = String::with_capacity(len);
        self.full.into_iter().chain([self.last]).for_each(|piece| whole.push_str(&piece));
        whole
    }
}

/// Python's `str(value)`.
pub(crate) fn to_str(machine: &mut Machine, value: &Value) -> Fallible<String> {
    match py(value) {
        Py::Str(text) => {
            budget::alloc(text.len())?;
            Ok(text.to_owned())
        }
        Py::Undefined(_) => Ok(String::new()),
        Py::Obj(Obj::Loop(object)) => Ok(format!("<LoopContext {}/{}>", object.index(), object.length(machine)?)),
        _ => repr(value),
    }
}

/// Python's `str(value)` where no loop can be printed.
pub(crate) fn to_plain_str(value: &Value) -> Fallible<String> {
    match py(value) {
        Py::Str(text) => {
            budget::alloc(text.len())?;
            Ok(text.to_owned())
        }
        Py::Undefined(_) => Ok(String::new()),
        _ => repr(value),
    }
}

/// Python's `repr(value)`.
pub(crate) fn repr(value: &Value) -> Fallible<String> {
    let mut out = Text::new();
    write(&mut out, value, 0)?;
    Ok(out.finish())
}

/// What stands for an address in memory, which differs from run to run in Python.
const ADDRESS: &str = "0x7f0000000000";

/// How deep printing goes; a namespace may hold itself.
const MAX_DEPTH: u16 = value::MAX_NESTING + 1;

fn write(out: &mut Text, value: &Value, depth: u16) -> Fallible<()> {
    if depth > MAX_DEPTH {
        return Err(limit(Limit::Nesting));
    }
    match py(value) {
        Py::None => out.push("None"),
        Py::Bool(true) => out.push("True"),
        Py::Bool(false) => out.push("False"),
        Py::Int(int) => out.push(&int.to_string()),
        Py::Float(float) => out.push(&number::float_repr(float)),
        Py::Str(text) if value.is_safe() => {
            out.push("Markup(")?;
            write_quoted(out, text)?;
            out.push(")")
        }
        Py::Str(text) => write_quoted(out, text),
        Py::Undefined(_) => out.push("Undefined"),
        Py::Obj(object) => write_object(out, value, object, depth),
    }
}

fn write_object(out: &mut Text, value: &Value, object: &Obj, depth: u16) -> Fallible<()> {
    match object {
        Obj::Seq(seq) => write_seq(out, seq, depth),
        Obj::Dict(dict) => write_entries(out, dict.entries(), depth),
        Obj::View(view) => {
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
        Obj::Range(range) if range.step() == 1 => out.push(&format!("range({}, {})", range.start(), range.stop())),
        Obj::Range(range) => out.push(&format!("range({}, {}, {})", range.start(), range.stop(), range.step())),
        Obj::BigInt(big) => out.push(&number::int_to_str(big.digits())?),
        Obj::Namespace(namespace) => {
            out.push("<Namespace ")?;
            write_entries(out, &namespace.attributes(), depth)?;
            out.push(">")
        }
        Obj::Macro(object) => match &object.spec().name {
            Some(name) => out.push(&format!("<Macro '{name}'>")),
            None => out.push("<Macro anonymous>"),
        },
        Obj::Loop(object) => out.push(&format!("<LoopContext {}/?>", object.index())),
        Obj::Method(method) => {
            let owner = type_name(&method.receiver);
            out.push(&format!("<built-in method {} of {owner} object at {ADDRESS}>", method.name))
        }
        Obj::Generator(generator) => match generator.kind() {
            GeneratorKind::Function(name) => out.push(&format!("<generator object {name} at {ADDRESS}>")),
            GeneratorKind::Type(name) => out.push(&format!("<{name} object at {ADDRESS}>")),
        },
        Obj::Bytes(bytes) => write_bytes(out, bytes.letters()),
        Obj::Builtin(builtin) => out.push(&builtin_repr(*builtin)),
        Obj::Template(_) => out.push("<TemplateReference None>"),
        Obj::Block(_) => out.push(&format!("<jinja2.runtime.BlockReference object at {ADDRESS}>")),
        Obj::Counter(_) => out.push(&format!("<jinja2.utils.{} object at {ADDRESS}>", type_name(value))),
        _ => out.push(&format!("<{} object>", type_name(value))),
    }
}

/// The letters of bytes, in quotes.
fn write_bytes(out: &mut Text, letters: &str) -> Fallible<()> {
    budget::walk(letters.len())?;
    let plain = marks::plain(letters);
    let quote = if plain.contains('\'') && !plain.contains('"') { "\"" } else { "'" };
    out.push("b")?;
    out.push(quote)?;
    marks::write(out, letters, |out, letters| {
        let mut written = String::new();
        for byte in letters.chars().map(byte_of) {
            match byte {
                b' '..=b'~' | b'\t' | b'\n' | b'\r' => push_quoted(&mut written, byte.into(), quote),
                _ => push_escape(&mut written, byte.into()),
            }
        }
        out.push(&written)
    })?;
    out.push(quote)
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

fn write_seq(out: &mut Text, seq: &Seq, depth: u16) -> Fallible<()> {
    match (seq.kind(), seq.items().len()) {
        (SeqKind::List, _) => write_items(out, seq.items(), "[", "]", depth),
        (_, 1) => write_items(out, seq.items(), "(", ",)", depth),
        _ => write_items(out, seq.items(), "(", ")", depth),
    }
}

fn write_items(out: &mut Text, items: &[Value], open: &str, close: &str, depth: u16) -> Fallible<()> {
    out.push(open)?;
    for (at, item) in items.iter().enumerate() {
        if at > 0 {
            out.push(", ")?;
        }
        write(out, item, depth + 1)?;
    }
    out.push(close)
}

fn write_entries(out: &mut Text, entries: &[(Value, Value)], depth: u16) -> Fallible<()> {
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

const QUOTED_AT_ONCE: usize = 4096;

/// A text in quotes, with escapes for what cannot be printed.
pub(crate) fn write_quoted(out: &mut Text, text: &str) -> Fallible<()> {
    budget::walk(text.len())?;
    let plain = marks::plain(text);
    let quote = if plain.contains('\'') && !plain.contains('"') { "\"" } else { "'" };
    out.push(quote)?;
    marks::write(out, text, |out, text| {
        let mut quoted = String::with_capacity(text.len().min(QUOTED_AT_ONCE));
        for c in text.chars() {
            push_quoted(&mut quoted, c, quote);
            if quoted.len() >= QUOTED_AT_ONCE {
                out.push(&quoted)?;
                quoted.clear();
            }
        }
        out.push(&quoted)
    })?;
    out.push(quote)
}

fn push_quoted(out: &mut String, c: char, quote: &str) {
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

/// Python's `ascii` of what `repr` gave.
pub(crate) fn ascii(text: &str) -> Fallible<String> {
    let mut out = Text::new();
    budget::walk(text.len())?;
    marks::write(&mut out, text, |out, text| {
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

/// markupsafe's `escape` of a plain text.
pub(crate) fn escape_html(text: &str) -> Fallible<String> {
    let mut out = Text::new();
    marks::write(&mut out, text, write_escaped)?;
    Ok(out.finish())
}

fn write_escaped(out: &mut Text, text: &str) -> Fallible<()> {
    let mut rest = text;
    while let Some(at) = rest.find(['&', '<', '>', '"', '\'']) {
        out.push(&rest[..at])?;
        out.push(match rest.as_bytes()[at] {
            b'&' => "&amp;",
            b'<' => "&lt;",
            b'>' => "&gt;",
            b'"' => "&#34;",
            _ => "&#39;",
        })?;
        rest = &rest[at + 1..];
    }
    out.push(rest)
}

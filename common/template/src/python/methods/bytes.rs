//! Methods of bytes: the methods of texts, on the characters that represent bytes.

use minijinja::Value;

use super::texts;
use crate::arguments::Args;
use crate::error::{Fallible, fail};
use crate::interpreter::Interpreter;
use crate::python::bytes::{byte_arg, decode};
use crate::python::convert::int_arg;
use crate::python::method_names::unsupported;
use crate::value::{
    Bytes, PyObject, PyValue, Seq, byte_of, iterate, list, py_object, py_value, seq, text, tuple, type_name,
};
use crate::{budget, taint};

pub(super) fn call(
    interpreter: &mut dyn Interpreter,
    bytes: &Bytes,
    name: &'static str,
    args: &Args<'_>,
) -> Fallible<Value> {
    budget::walk(bytes.as_text().len())?;
    match name {
        "decode" => decode(bytes, args),
        "hex" => hex(bytes, args),
        "splitlines" => split_lines(bytes, args),
        "isascii" => {
            args.bind::<0>(name, [])?;
            Ok(Value::from(bytes.iter().all(|byte| byte.is_ascii())))
        }
        "fromhex" | "maketrans" | "translate" => Err(unsupported(name)),
        _ => {
            let args = text_args(name, args)?;
            let receiver = text(bytes.as_text())?;
            let found = texts::call(interpreter, &receiver, bytes.as_text(), name, &args)?;
            bytes_of(&found)
        }
    }
}

/// Returns the arguments with characters in place of bytes. A text is not accepted.
fn text_args(name: &str, args: &Args<'_>) -> Fallible<Args<'static>> {
    let counts = matches!(name, "count" | "find" | "index" | "rfind" | "rindex");
    let mut positional = Vec::with_capacity(args.positional.len());
    for (at, value) in args.positional.iter().enumerate() {
        positional.push(match py_value(value) {
            PyValue::Int(_) | PyValue::Bool(_) if counts && at == 0 => text(byte_arg(value)?)?,
            _ if name == "join" => joined_items(value)?,
            _ => text_arg(value)?,
        });
    }
    let keywords = args.keywords.iter().map(|(name, value)| Ok((name.clone(), text_arg(value)?)));
    Ok(Args { positional: positional.into(), keywords: keywords.collect::<Fallible<_>>()? })
}

fn text_arg(value: &Value) -> Fallible<Value> {
    match py_value(value) {
        PyValue::Object(PyObject::Bytes(bytes)) => text(bytes.as_text()),
        PyValue::Object(PyObject::Seq(items)) if !items.is_list() => {
            tuple(items.items().iter().map(text_arg).collect::<Fallible<_>>()?)
        }
        PyValue::Str(_) => Err(fail("a bytes-like object is required, not 'str'")),
        _ => Ok(value.clone()),
    }
}

fn joined_items(items: &Value) -> Fallible<Value> {
    let mut chars = Vec::new();
    for (at, item) in iterate(items)?.enumerate() {
        let item = item?;
        let Some(PyObject::Bytes(bytes)) = py_object(&item) else {
            let found = type_name(&item);
            return Err(fail(format!("sequence item {at}: expected a bytes-like object, {found} found")));
        };
        budget::alloc_values(1)?;
        chars.push(text(bytes.as_text())?);
    }
    list(chars)
}

/// Returns the result of a text method with bytes in place of characters.
fn bytes_of(found: &Value) -> Fallible<Value> {
    match (found.as_str(), seq(found)) {
        (Some(chars), _) => Bytes::value(chars.to_owned()),
        (None, Some(items)) => {
            let parts = items.items().iter().map(bytes_of).collect::<Fallible<_>>()?;
            Seq::value(items.kind(), parts)
        }
        (None, None) => Ok(found.clone()),
    }
}

/// Bytes, unlike texts, have no other line ends than these.
fn split_lines(bytes: &Bytes, args: &Args<'_>) -> Fallible<Value> {
    let [keep_ends] = args.bind("splitlines", ["keepends"])?;
    let keeps = keep_ends.is_some_and(|keep_ends| keep_ends.is_true());
    let lines = taint::cut(bytes.as_text(), |chars| {
        let mut lines = Vec::new();
        let mut rest = chars;
        while let Some(at) = rest.find(['\n', '\r']) {
            budget::alloc_values(1)?;
            let end = at + if rest[at..].starts_with("\r\n") { 2 } else { 1 };
            lines.push(&rest[..if keeps { end } else { at }]);
            rest = &rest[end..];
        }
        lines.extend((!rest.is_empty()).then_some(rest));
        Ok(lines)
    })?;
    list(lines.into_iter().map(|line| Bytes::value(line.to_owned())).collect::<Fallible<_>>()?)
}

/// Evaluates `bytes.hex(separator, bytes_per_group)`. Groups are counted from the right, or from
/// the left if the number is negative.
fn hex(bytes: &Bytes, args: &Args<'_>) -> Fallible<Value> {
    let [separator, group] = args.bind("hex", ["sep", "bytes_per_sep"])?;
    let group = group.map_or(Ok(1), |group| int_arg(&group))?;
    budget::room(bytes.as_text().len().saturating_mul(3 * MAX_CHAR_BYTES))?;
    let separator = separator.map(|separator| hex_separator(&separator)).transpose()?.filter(|_| group != 0);
    let size = usize::try_from(group.unsigned_abs()).unwrap_or(usize::MAX).max(1);
    let len = bytes.len();
    let mut written = String::new();
    for (at, character) in bytes.as_text().chars().enumerate() {
        let counted = if group > 0 { len - at } else { at };
        written.extend(separator.filter(|_| at > 0 && counted % size == 0));
        let digits = format!("{:02x}", byte_of(character));
        written.push_str(&taint::with_taint_of(character.encode_utf8(&mut [0; 4]), digits));
    }
    text(written)
}

/// The most bytes of a character.
const MAX_CHAR_BYTES: usize = 4;

fn hex_separator(separator: &Value) -> Fallible<char> {
    let chars = match py_value(separator) {
        PyValue::Str(chars) => chars,
        PyValue::Object(PyObject::Bytes(bytes)) => bytes.as_text(),
        _ => return Err(fail("sep must be str or bytes.")),
    };
    let mut chars = chars.chars();
    match (chars.next(), chars.next()) {
        (Some(character), None) if taint::strip_char(character).is_ascii() => Ok(character),
        (Some(_), None) => Err(fail("sep must be ASCII.")),
        _ => Err(fail("sep must be length 1.")),
    }
}

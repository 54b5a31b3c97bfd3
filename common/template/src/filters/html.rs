//! Filters for markup and addresses.

use minijinja::Value;

use crate::arguments::Args;
use crate::error::{Fallible, fail};
use crate::interpreter::Interpreter;
use crate::python::{markup, repr};
use crate::text_buffer::TextBuffer;
use crate::value::{PyValue, dict, is_iterable, is_undefined, iterate, py_value, safe_text, text, to_vec};
use crate::{budget, taint};

pub(super) fn safe(interpreter: &mut dyn Interpreter, value: &Value, args: &Args<'_>) -> Fallible<Value> {
    args.bind::<0>("safe", [])?;
    safe_text(repr::to_str(interpreter, value)?)
}

pub(super) fn escape(interpreter: &mut dyn Interpreter, value: &Value, args: &Args<'_>) -> Fallible<Value> {
    args.bind::<0>("escape", [])?;
    markup::escape(interpreter, value)
}

pub(super) fn striptags(interpreter: &mut dyn Interpreter, value: &Value, args: &Args<'_>) -> Fallible<Value> {
    args.bind::<0>("striptags", [])?;
    markup::striptags(interpreter, value)
}

pub(super) fn forceescape(interpreter: &mut dyn Interpreter, value: &Value, args: &Args<'_>) -> Fallible<Value> {
    args.bind::<0>("forceescape", [])?;
    safe_text(markup::escape_html(&repr::to_str(interpreter, value)?)?)
}

pub(super) fn xmlattr(interpreter: &mut dyn Interpreter, value: &Value, args: &Args<'_>) -> Fallible<Value> {
    let [space] = args.bind("xmlattr", ["autospace"])?;
    let Some(attributes) = dict(value) else {
        return Err(fail("the filter 'xmlattr' needs a mapping"));
    };
    let mut out = TextBuffer::new();
    for (key, item) in attributes.entries().iter().filter(|(_, item)| !item.is_none() && !is_undefined(item)) {
        let name = key.as_str().ok_or_else(|| fail("attribute names must be texts"))?;
        if taint::strip(name).contains([' ', '\t', '\n', '\r', '\x0b', '\x0c', '/', '>', '=']) {
            return Err(fail(format!("Invalid character in attribute name: '{name}'")));
        }
        out.push(" ")?;
        out.push(&markup::escape_html(name)?)?;
        out.push("=\"")?;
        let content = repr::to_str(interpreter, item)?;
        out.push(&if item.is_safe() { content } else { markup::escape_html(&content)? })?;
        out.push("\"")?;
    }
    let out = out.finish();
    let spaced = space.is_none_or(|space| space.is_true());
    let out = if spaced { out } else { out.trim_start_matches(' ').to_owned() };
    if interpreter.autoescapes() { safe_text(out) } else { text(out) }
}

pub(super) fn urlencode(interpreter: &mut dyn Interpreter, value: &Value, args: &Args<'_>) -> Fallible<Value> {
    args.bind::<0>("urlencode", [])?;
    if matches!(py_value(value), PyValue::Str(_)) || !is_iterable(value) {
        return text(quote(&repr::to_str(interpreter, value)?, false)?);
    }
    let mut out = TextBuffer::new();
    let mut separator = "";
    let mut add = |interpreter: &mut dyn Interpreter, key: &Value, item: &Value| -> Fallible<()> {
        out.push(std::mem::replace(&mut separator, "&"))?;
        out.push(&quote(&repr::to_str(interpreter, key)?, true)?)?;
        out.push("=")?;
        out.push(&quote(&repr::to_str(interpreter, item)?, true)?)
    };
    match dict(value) {
        Some(entries) => entries.entries().iter().try_for_each(|(key, item)| add(interpreter, key, item))?,
        None => {
            for pair in iterate(value)? {
                match to_vec(&pair?)?.as_slice() {
                    [key, item] => add(interpreter, key, item)?,
                    _ => return Err(fail("the filter 'urlencode' needs pairs")),
                }
            }
        }
    }
    text(out.finish())
}

/// The number of bytes that are escaped at once.
const PIECE_BYTES: usize = 4096;

const HEX: [char; 16] = ['0', '1', '2', '3', '4', '5', '6', '7', '8', '9', 'A', 'B', 'C', 'D', 'E', 'F'];

/// Percent-encodes a text. In a query, spaces become `+` and slashes are encoded too.
fn quote(content: &str, in_query: bool) -> Fallible<String> {
    budget::walk(content.len())?;
    let mut out = TextBuffer::new();
    taint::write(&mut out, content, |out, content| {
        content.as_bytes().chunks(PIECE_BYTES).try_for_each(|piece| out.push(&percent_escaped(piece, in_query)))
    })?;
    Ok(out.finish())
}

fn percent_escaped(content: &[u8], in_query: bool) -> String {
    let mut out = String::with_capacity(content.len());
    for byte in content.iter().copied() {
        match byte {
            b'A'..=b'Z' | b'a'..=b'z' | b'0'..=b'9' | b'_' | b'.' | b'-' | b'~' => out.push(char::from(byte)),
            b'/' if !in_query => out.push('/'),
            b' ' if in_query => out.push('+'),
            byte => out.extend(['%', HEX[usize::from(byte >> 4)], HEX[usize::from(byte & 15)]]),
        }
    }
    out
}

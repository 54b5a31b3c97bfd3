//! Filters for markup and addresses.

use minijinja::Value;

use super::super::budget;
use super::super::error::{Fallible, fail};
use super::super::machine::Machine;
use super::super::marks;
use super::super::python::call::Args;
use super::super::python::repr::{self, Text};
use super::super::python::text::split;
use super::super::value::{Py, dict, is_iterable, is_undefined, iterate, py, safe_text, text, to_vec};
use super::entities;

pub(super) fn safe(machine: &mut Machine, value: &Value, args: &Args<'_>) -> Fallible<Value> {
    args.bind::<0>("safe", [])?;
    safe_text(repr::to_str(machine, value)?)
}

pub(crate) fn escape(machine: &mut Machine, value: &Value, args: &Args<'_>) -> Fallible<Value> {
    args.bind::<0>("escape", [])?;
    if value.is_safe() {
        return Ok(value.clone());
    }
    safe_text(repr::escape_html(&repr::to_str(machine, value)?)?)
}

pub(super) fn forceescape(machine: &mut Machine, value: &Value, args: &Args<'_>) -> Fallible<Value> {
    args.bind::<0>("forceescape", [])?;
    safe_text(repr::escape_html(&repr::to_str(machine, value)?)?)
}

pub(crate) fn striptags(machine: &mut Machine, value: &Value, args: &Args<'_>) -> Fallible<Value> {
    args.bind::<0>("striptags", [])?;
    let content = repr::to_str(machine, value)?;
    budget::steps(content.len())?;
    budget::room(2 * content.len())?;
    let content = marks::cut(&content, |content| Ok(without_tags(content)))?.concat();
    text(entities::unescape(&split(&content, None, None)?.join(" "))?)
}

/// The text with what its character references stand for.
pub(crate) fn unescape(content: &str) -> Fallible<Value> {
    budget::room(content.len())?;
    text(entities::unescape(content)?)
}

/// What is left without comments and tags, up to the first that does not end.
fn without_tags(content: &str) -> Vec<&str> {
    let mut parts = Vec::new();
    let mut rest = content;
    while let Some(start) = rest.find('<') {
        let is_comment = rest[start..].starts_with("<!--");
        let (skipped, close) = if is_comment { (4, "-->") } else { (0, ">") };
        let Some(len) = rest[start + skipped..].find(close) else { break };
        parts.push(&rest[..start]);
        rest = &rest[start + skipped + len + close.len()..];
    }
    parts.push(rest);
    parts
}

pub(super) fn xmlattr(machine: &mut Machine, value: &Value, args: &Args<'_>) -> Fallible<Value> {
    let [space] = args.bind("xmlattr", ["autospace"])?;
    let Some(attributes) = dict(value) else {
        return Err(fail("the filter 'xmlattr' needs a mapping"));
    };
    let mut out = Text::new();
    for (key, item) in attributes.entries().iter().filter(|(_, item)| !item.is_none() && !is_undefined(item)) {
        let name = key.as_str().ok_or_else(|| fail("attribute names must be texts"))?;
        if marks::plain(name).contains([' ', '\t', '\n', '\r', '\x0b', '\x0c', '/', '>', '=']) {
            return Err(fail(format!("Invalid character in attribute name: '{name}'")));
        }
        out.push(" ")?;
        out.push(&repr::escape_html(name)?)?;
        out.push("=\"")?;
        let content = repr::to_str(machine, item)?;
        out.push(&if item.is_safe() { content } else { repr::escape_html(&content)? })?;
        out.push("\"")?;
    }
    let out = out.finish();
    let spaced = space.is_none_or(|space| space.is_true());
    let out = if spaced { out } else { out.trim_start_matches(' ').to_owned() };
    if machine.autoescapes() { safe_text(out) } else { text(out) }
}

pub(super) fn urlencode(machine: &mut Machine, value: &Value, args: &Args<'_>) -> Fallible<Value> {
    args.bind::<0>("urlencode", [])?;
    if matches!(py(value), Py::Str(_)) || !is_iterable(value) {
        return text(quote(&repr::to_str(machine, value)?, false)?);
    }
    let mut out = Text::new();
    let mut separator = "";
    let mut add = |machine: &mut Machine, key: &Value, item: &Value| -> Fallible<()> {
        out.push(std::mem::replace(&mut separator, "&"))?;
        out.push(&quote(&repr::to_str(machine, key)?, true)?)?;
        out.push("=")?;
        out.push(&quote(&repr::to_str(machine, item)?, true)?)
    };
    match dict(value) {
        Some(entries) => entries.entries().iter().try_for_each(|(key, item)| add(machine, key, item))?,
        None => {
            for pair in iterate(value)? {
                match to_vec(&pair?)?.as_slice() {
                    [key, item] => add(machine, key, item)?,
                    _ => return Err(fail("the filter 'urlencode' needs pairs")),
                }
            }
        }
    }
    text(out.finish())
}

/// How many bytes are escaped at once.
const PIECE: usize = 4096;

const HEX: [char; 16] = ['0', '1', '2', '3', '4', '5', '6', '7', '8', '9', 'A', 'B', 'C', 'D', 'E', 'F'];

/// Percent escapes; in a query, spaces become `+` and slashes are escaped too.
fn quote(content: &str, in_query: bool) -> Fallible<String> {
    budget::walk(content.len())?;
    let mut out = Text::new();
    marks::write(&mut out, content, |out, content| {
        content.as_bytes().chunks(PIECE).try_for_each(|piece| out.push(&percent_escaped(piece, in_query)))
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

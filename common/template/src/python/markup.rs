//! markupsafe: escapes for HTML, `striptags` and `unescape`.

mod references;

use minijinja::Value;

use super::repr;
use super::text::split;
use crate::error::Fallible;
use crate::interpreter::Interpreter;
use crate::text_buffer::TextBuffer;
use crate::value::{safe_text, text};
use crate::{budget, taint};

/// Escapes plain text for HTML, as markupsafe's `escape` does.
pub(crate) fn escape_html(text: &str) -> Fallible<String> {
    let mut out = TextBuffer::new();
    taint::write(&mut out, text, write_escaped)?;
    Ok(out.finish())
}

fn write_escaped(out: &mut TextBuffer, text: &str) -> Fallible<()> {
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

/// Returns the text of a value escaped for HTML and marked as safe; safe text is unchanged.
pub(crate) fn escape(interpreter: &mut dyn Interpreter, value: &Value) -> Fallible<Value> {
    if value.is_safe() {
        return Ok(value.clone());
    }
    safe_text(escape_html(&repr::to_str(interpreter, value)?)?)
}

/// Returns the text of a value without comments and tags, with single spaces and references
/// resolved.
pub(crate) fn striptags(interpreter: &mut dyn Interpreter, value: &Value) -> Fallible<Value> {
    let content = repr::to_str(interpreter, value)?;
    budget::steps(content.len())?;
    budget::room(2 * content.len())?;
    let content = taint::cut(&content, |content| Ok(without_tags(content)))?.concat();
    text(references::unescape(&split(&content, None, None)?.join(" "))?)
}

/// Returns the text with its character references resolved.
pub(crate) fn unescape(content: &str) -> Fallible<Value> {
    budget::room(content.len())?;
    text(references::unescape(content)?)
}

/// Returns the text without comments and tags, up to the first that does not end.
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

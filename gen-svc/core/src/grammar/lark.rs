//! Lark grammars in the form of the grammar library.

use serde_json::Value;

use super::schema;
use super::source::Whitespace;

/// The keyword before a JSON schema.
pub(super) const JSON: &str = "%json";

/// Returns the grammar with its JSON schemas [adapted](schema::adapt).
///
/// # Errors
/// A schema is not JSON, or the library would not keep to it.
pub(super) fn adapt(text: &str, whitespace: Whitespace) -> Result<String, String> {
    let (mut adapted, mut rest) = (String::with_capacity(text.len()), text);
    while !rest.is_empty() {
        if let Some(after) = rest.strip_prefix(JSON) {
            let mut values = serde_json::Deserializer::from_str(after).into_iter::<Value>();
            let schema = values.next().ok_or_else(|| format!("must have a JSON schema after {JSON}"))?;
            let schema = schema.map_err(|error| format!("must have JSON after {JSON}: {error}"))?;
            let schema = schema::adapt(schema, whitespace)?;
            adapted.extend([JSON, " ", &schema.to_string()]);
            rest = &after[values.byte_offset()..];
            continue;
        }
        let (unit, after) = rest.split_at(unit(rest));
        adapted.push_str(unit);
        rest = after;
    }
    Ok(adapted)
}

/// Returns a regular expression as one of a Lark grammar: between slashes.
pub(super) fn regex(text: &str) -> String {
    let (mut quoted, mut is_escaped) = (String::from("/"), false);
    for char in text.chars() {
        if char == '/' && !is_escaped {
            quoted.push('\\');
        }
        quoted.push(char);
        is_escaped = char == '\\' && !is_escaped;
    }
    quoted + "/"
}

/// Returns the bytes of the first unit: a comment, a string, a regular expression, or a character.
fn unit(text: &str) -> usize {
    let first = text.chars().next().map_or(0, char::len_utf8);
    let line = text.find('\n').unwrap_or(text.len());
    match text.as_bytes()[0] {
        b'#' => line,
        b'/' if text.starts_with("//") => line,
        quote @ (b'"' | b'/') => quoted(&text.as_bytes()[..line], quote).unwrap_or(first),
        _ => first,
    }
}

/// Returns the bytes up to the second `quote`, which no backslash precedes. None: there is none.
fn quoted(line: &[u8], quote: u8) -> Option<usize> {
    let mut escaped = false;
    let end = line.iter().skip(1).position(|&byte| {
        let is_end = byte == quote && !escaped;
        escaped = byte == b'\\' && !escaped;
        is_end
    })?;
    Some(end + 2)
}

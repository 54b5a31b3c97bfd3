//! JSON whose keys may have no quotes, and whose constants may be Python's: the arguments of Gemma's calls.

use super::python;

/// Returns such a text as JSON. Strings in quotes, and words with `mark`, stay as they are. The result is
/// JSON only if the text was well-formed.
pub(super) fn quoted(text: &str, mark: char) -> String {
    let (mut out, mut rest) = (String::with_capacity(text.len()), text);
    while let Some(c) = rest.chars().next() {
        if c == '"' {
            let (string, after) = rest.split_at(string_end(rest));
            out.push_str(string);
            rest = after;
        } else if is_word(c) {
            let (word, after) = rest.split_at(rest.find(|c| !is_word(c)).unwrap_or(rest.len()));
            let word = word.trim_end_matches(python::is_space);
            if after.starts_with(':') && !word.contains(mark) {
                out.push_str(&serde_json::Value::from(word).to_string());
            } else {
                out.push_str(constant(word));
            }
            rest = after;
        } else {
            out.push(c);
            rest = rest.split_at(c.len_utf8()).1;
        }
        rest = rest.trim_start_matches(python::is_space);
    }
    out
}

fn is_word(c: char) -> bool {
    !matches!(c, '"' | '{' | '}' | '[' | ']' | ',' | ':')
}

fn constant(word: &str) -> &str {
    match word {
        "None" => "null",
        "True" => "true",
        "False" => "false",
        word => word,
    }
}

/// Returns the end of the string at the start of a text, or of the text.
fn string_end(text: &str) -> usize {
    let mut is_escaped = false;
    let end = text.bytes().enumerate().skip(1).find(|(_, byte)| {
        let is_end = *byte == b'"' && !is_escaped;
        is_escaped = *byte == b'\\' && !is_escaped;
        is_end
    });
    end.map_or(text.len(), |(at, _)| at + 1)
}

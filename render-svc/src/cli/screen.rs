//! Prompts and tokens as a person reads them on a terminal.

use std::collections::HashSet;
use std::fmt::Write as _;
use std::ops::Range;

use serde_json::Value;
use tandem_common::screen::is_unsafe;
use tandem_model_files::tokenizer::{Encoding, Tokenizer};

/// The reader of an answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reader {
    /// A program or a file, which gets exact bytes or JSON.
    Program,
    /// A person at a terminal.
    Person {
        /// True if the terminal shows colours.
        is_coloured: bool,
    },
}

impl Reader {
    /// Returns a value as one line of JSON.
    pub(super) fn json(self, value: &Value) -> String {
        match self {
            Self::Program => value.to_string(),
            Self::Person { .. } => json(value),
        }
    }
}

/// The colours of tokens in turns: black on cyan, black on yellow.
const TOKENS: [&str; 2] = ["\x1b[30;46m", "\x1b[30;43m"];
/// The colour of control tokens among others: black on magenta.
const CONTROL_TOKEN: &str = "\x1b[1;30;45m";
/// The colour of control tokens in a prompt.
const CONTROL_TEXT: &str = "\x1b[1;35m";
const RESET: &str = "\x1b[0m";

/// Returns a prompt whose control tokens are coloured. Newlines and tabs stay; other characters that a terminal may
/// take as commands become escapes. The last line is ended.
pub(super) fn prompt(text: &str, control: &[Range<usize>]) -> String {
    let (mut out, mut done) = (String::with_capacity(text.len()), 0);
    for Range { start, end } in control.iter().filter(|range| !range.is_empty()) {
        let (before, token) = (&text[done..*start], &text[*start..*end]);
        let _ = write!(out, "{}{CONTROL_TEXT}{}{RESET}", lines(before), lines(token));
        done = *end;
    }
    out.push_str(&lines(&text[done..]));
    if !text.ends_with('\n') {
        out.push('\n');
    }
    out
}

/// Returns the places of the control tokens in a text with these tokens.
pub(super) fn control_places(tokenizer: &Tokenizer, encoding: &Encoding) -> Vec<Range<usize>> {
    let (control, offsets) = (ControlTokens::of(tokenizer), encoding.offsets.as_deref().unwrap_or_default());
    let tokens = encoding.ids.iter().zip(offsets);
    tokens.filter(|(id, _)| control.0.contains(id)).map(|(_, place)| place.clone()).collect()
}

/// Returns the pieces of a text, then their ids. Without colours, these are a table.
pub(super) fn tokens(tokenizer: &Tokenizer, ids: &[u32], is_coloured: bool) -> String {
    let control = ControlTokens::of(tokenizer);
    let pieces: Vec<_> = ids.iter().map(|&id| Piece::of(tokenizer, &control, id)).collect();
    let count = pieces.iter().filter(|piece| piece.is_control).count();
    let shown = if is_coloured { coloured(&pieces) } else { table(&pieces) };
    format!("{shown}tokens: {}, control tokens: {count}\n", ids.len())
}

/// The ids of control tokens.
struct ControlTokens(HashSet<u32>);

impl ControlTokens {
    fn of(tokenizer: &Tokenizer) -> Self {
        let control = tokenizer.added_tokens().iter().filter(|token| token.is_control(|_| false));
        Self(control.map(|token| token.id).collect())
    }
}

/// A token.
struct Piece {
    id: u32,
    /// Its bytes: text, with escapes for control characters and for bytes that are part of a character.
    text: String,
    is_control: bool,
    has_newline: bool,
}

impl Piece {
    fn of(tokenizer: &Tokenizer, control: &ControlTokens, id: u32) -> Self {
        let bytes = tokenizer.token_bytes(id).unwrap_or_default();
        let mut text = String::with_capacity(bytes.len());
        for chunk in bytes.utf8_chunks() {
            chunk.valid().chars().for_each(|c| push_escaped(&mut text, c));
            text.extend(chunk.invalid().iter().map(|byte| format!("\\x{byte:02x}")));
        }
        Self { id, text, is_control: control.0.contains(&id), has_newline: bytes.contains(&b'\n') }
    }
}

fn coloured(pieces: &[Piece]) -> String {
    let (mut texts, mut ids) = (String::new(), String::new());
    for (piece, colour) in pieces.iter().zip(TOKENS.iter().cycle()) {
        let colour = if piece.is_control { CONTROL_TOKEN } else { colour };
        let end = if piece.has_newline { "\n" } else { "" };
        let _ = write!(texts, "{colour}{}{RESET}{end}", piece.text);
        let _ = write!(ids, "{colour}{}{RESET} ", piece.id);
    }
    let end = if pieces.last().is_none_or(|piece| piece.has_newline) { "" } else { "\n" };
    format!("{texts}{end}{}\n", ids.trim_end())
}

fn table(pieces: &[Piece]) -> String {
    let width = pieces.iter().map(|piece| piece.id.to_string().len()).max().unwrap_or(0);
    let mark = |piece: &Piece| if piece.is_control { "  control token" } else { "" };
    pieces.iter().map(|piece| format!("{:>width$}  \"{}\"{}\n", piece.id, piece.text, mark(piece))).collect()
}

/// Returns a text in which newlines and tabs are the only characters that command a terminal.
fn lines(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        if matches!(c, '\n' | '\t') { out.push(c) } else { push_escaped(&mut out, c) }
    }
    out
}

/// Returns JSON without characters that a terminal may take as commands.
fn json(value: &Value) -> String {
    let mut text = value.to_string();
    if text.contains(is_unsafe) {
        let escaped = |c: char| if is_unsafe(c) { format!("\\u{:04x}", u32::from(c)) } else { c.to_string() };
        text = text.chars().map(escaped).collect();
    }
    text
}

/// Adds a character. One that a terminal may take as a command becomes an escape, such as `\u{1b}`.
fn push_escaped(out: &mut String, c: char) {
    if c == '\t' || is_unsafe(c) { out.extend(c.escape_default()) } else { out.push(c) }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::{lines, prompt};

    #[test]
    fn only_newlines_and_tabs_of_a_prompt_reach_a_terminal() {
        let text = "a\tb\nc\r\u{7}\u{1b}[31m\u{9b}31m\u{202e}é😀";
        assert_eq!(lines(text), "a\tb\nc\\r\\u{7}\\u{1b}[31m\\u{9b}31m\\u{202e}é😀");
    }

    #[test]
    fn json_for_a_terminal_has_the_same_value() {
        let value = json!(["a\u{1b}\u{7f}\u{9b}\u{202e}é\n"]);
        let shown = super::json(&value);
        assert!(shown.chars().all(|c| !super::is_unsafe(c)), "{shown}");
        assert_eq!(serde_json::from_str::<serde_json::Value>(&shown).expect("JSON"), value);
    }

    #[test]
    fn control_tokens_of_a_prompt_are_coloured_and_the_last_line_is_ended() {
        assert_eq!(prompt("<s>a</s>", &[0..3, 4..4, 4..8]), "\x1b[1;35m<s>\x1b[0ma\x1b[1;35m</s>\x1b[0m\n");
        assert_eq!(prompt("a\n", &[]), "a\n");
    }
}

//! Pasted text. A long paste is shown as a short label, because a line editor draws its whole text
//! after each key. The label is replaced when the message is sent.

use std::fmt::Write as _;

/// The most characters and lines of a paste that is shown as it is.
const MAX_SHOWN_CHARS: usize = 1000;
const MAX_SHOWN_LINES: usize = 10;
/// Continues a typed message on the next line. The backslash is no part of the message, but in a
/// paste it is: a paste that has it is shown as a label.
pub(crate) const CONTINUATION: &str = "\\\n";

/// The long pastes of this conversation, by their labels.
#[derive(Debug, Default)]
pub(crate) struct Pastes {
    /// The text of an unfinished paste.
    open: Option<String>,
    long: Vec<Paste>,
}

#[derive(Debug)]
struct Paste {
    label: String,
    text: String,
}

impl Pastes {
    /// Starts a paste.
    pub(crate) fn start(&mut self) {
        self.open = Some(String::new());
    }

    /// Returns the unfinished paste.
    pub(crate) fn open(&mut self) -> Option<&mut String> {
        self.open.as_mut()
    }

    /// Drops an unfinished paste.
    pub(crate) fn abandon(&mut self) {
        self.open = None;
    }

    /// Ends a paste and returns the text to insert: the paste, or the label of a long one.
    pub(crate) fn end(&mut self) -> String {
        let text = self.open.take().unwrap_or_default().replace("\r\n", "\n").replace('\r', "\n");
        let (chars, lines) = (text.chars().count(), text.lines().count());
        let has_continuation = text.ends_with('\\') || text.contains(CONTINUATION);
        if chars <= MAX_SHOWN_CHARS && lines <= MAX_SHOWN_LINES && !has_continuation {
            return text;
        }
        let mut label = format!("[paste {}: {chars} characters", self.long.len() + 1);
        if lines > 1 {
            let _ = write!(label, ", {lines} lines");
        }
        label.push(']');
        self.long.push(Paste { label: label.clone(), text });
        label
    }

    /// Returns a line with its labels replaced by their texts.
    pub(crate) fn expand(&self, line: &str) -> String {
        let mut rest = line;
        let mut expanded = String::new();
        // In one pass, so that a label in a pasted text remains.
        while let Some((start, paste)) = self.first_label(rest) {
            expanded.push_str(&rest[..start]);
            expanded.push_str(&paste.text);
            rest = &rest[start + paste.label.len()..];
        }
        expanded + rest
    }

    /// Returns true if a line has the label of a long paste.
    pub(crate) fn has_label(&self, line: &str) -> bool {
        self.first_label(line).is_some()
    }

    fn first_label(&self, line: &str) -> Option<(usize, &Paste)> {
        let found = self.long.iter().filter_map(|paste| Some((line.find(&paste.label)?, paste)));
        found.min_by_key(|(start, _)| *start)
    }
}

//! Text for a terminal, wrapped between words as it arrives.

use std::fmt::Write as _;

use tandem_common::screen::is_unsafe;
use unicode_width::UnicodeWidthChar as _;

/// Columns between tab stops.
const TAB: usize = 8;
/// Joins emoji into one; the text is not broken after it.
const JOINER: char = '\u{200d}';
/// Wide punctuation that does not start a line.
const CLOSING: &str = "、。，．！？：；）」』】〉》〕";

/// Wraps a stream of text. The unfinished word is held back until its end is known.
///
/// Lines of code blocks are printed as they are, and so are the rows of tables. Control characters
/// other than newline and tab are replaced: an answer must not command the terminal.
#[derive(Debug, Default)]
pub(crate) struct Wrap {
    /// Columns of the current row that are taken.
    column: usize,
    /// Spaces that are printed if the next word fits on this row.
    gap: String,
    /// The word so far, and its columns.
    word: String,
    word_width: usize,
    /// True while the rest of a word that is longer than a row is printed as it comes.
    is_long_word: bool,
    line: Line,
    /// The marker that opened the code block, such as ```` ``` ````.
    fence: Option<String>,
}

/// The start of the current line of the text.
#[derive(Debug, Default)]
struct Line {
    start: String,
    is_verbatim: bool,
}

/// Characters of a line that decide whether it is a fence, code or a table row.
const START: usize = 16;

impl Wrap {
    /// Returns the part of the text that can be printed. `width` is looked up when a word may not
    /// fit, so that a resized terminal takes effect at the next line.
    pub(crate) fn push(&mut self, text: &str, width: impl Fn() -> usize) -> String {
        let mut out = String::with_capacity(text.len());
        for c in text.chars() {
            match c {
                '\n' => self.end_line(&mut out, &width),
                '\r' => {}
                _ => self.push_char(if is_unsafe(c) { '\u{fffd}' } else { c }, &mut out, &width),
            }
        }
        out
    }

    /// Returns the text that is held back.
    pub(crate) fn finish(&mut self, width: impl Fn() -> usize) -> String {
        let mut out = String::new();
        self.end_word(&mut out, &width);
        out
    }

    fn push_char(&mut self, c: char, out: &mut String, width: &impl Fn() -> usize) {
        self.line.push(c, self.fence.is_some());
        if self.line.is_verbatim {
            self.print_held(out);
            out.push(c);
            return;
        }
        if c == ' ' || c == '\t' {
            self.end_word(out, width);
            self.is_long_word = false;
            self.gap.push(c);
            return;
        }
        if self.is_long_word {
            out.push(c);
            self.advance(c.width().unwrap_or(0), width());
            return;
        }
        if self.can_break_before(c) {
            self.end_word(out, width);
        }
        self.word.push(c);
        self.word_width += c.width().unwrap_or(0);
        if self.word_width > width() {
            self.end_word(out, width);
            self.is_long_word = true;
        }
    }

    /// Returns true if a row may end between the held word and `c`: around wide characters, which
    /// have no spaces between words.
    fn can_break_before(&self, c: char) -> bool {
        let Some(last) = self.word.chars().next_back() else { return false };
        let continues = c.width().unwrap_or(0) == 0 || last == JOINER || CLOSING.contains(c);
        let is_after_wide = self.word.chars().any(|c| c.width() == Some(2));
        (c.width() == Some(2) || is_after_wide) && !continues
    }

    /// Prints the held word, on the next row if it does not fit.
    fn end_word(&mut self, out: &mut String, width: &impl Fn() -> usize) {
        if self.word.is_empty() {
            return;
        }
        let gap = self.gap_width();
        if self.column > 0 && self.column + gap + self.word_width > width() {
            out.push('\n');
            self.column = 0;
        } else {
            out.push_str(&self.gap);
            self.column += gap;
        }
        out.push_str(&self.word);
        self.advance(self.word_width, width());
        self.forget();
    }

    /// Counts printed columns. The terminal itself breaks a row that is full.
    fn advance(&mut self, columns: usize, width: usize) {
        self.column += columns;
        if self.column > width {
            self.column = (self.column - 1) % width + 1;
        }
    }

    fn gap_width(&self) -> usize {
        let end = self
            .gap
            .chars()
            .fold(self.column, |column, c| if c == '\t' { (column / TAB + 1) * TAB } else { column + 1 });
        end - self.column
    }

    fn print_held(&mut self, out: &mut String) {
        let _ = write!(out, "{}{}", self.gap, self.word);
        self.forget();
    }

    fn forget(&mut self) {
        self.gap.clear();
        self.word.clear();
        self.word_width = 0;
    }

    fn end_line(&mut self, out: &mut String, width: &impl Fn() -> usize) {
        self.end_word(out, width);
        out.push('\n');
        self.gap.clear();
        (self.column, self.is_long_word) = (0, false);
        self.fence = match (self.fence.take(), self.line.fence()) {
            (None, opened) => opened,
            (Some(open), Some(marker)) if marker.starts_with(&open) => None,
            (open, _) => open,
        };
        self.line = Line::default();
    }
}

impl Line {
    fn push(&mut self, c: char, is_code: bool) {
        if self.start.chars().count() < START {
            self.start.push(c);
        }
        self.is_verbatim |= is_code || self.is_code() || self.start.starts_with('|');
    }

    /// Returns true for an indented line that is no item of a nested list.
    fn is_code(&self) -> bool {
        let text = self.start.trim_start();
        let is_indented = self.start.starts_with("    ") || self.start.starts_with('\t');
        is_indented && text.starts_with(|c: char| !c.is_ascii_digit() && !"-*+•".contains(c))
    }

    /// Returns the marker of a line that starts or ends a code block.
    fn fence(&self) -> Option<String> {
        let text = self.start.trim_start();
        let marker = text.chars().next().filter(|c| "`~".contains(*c))?;
        let fence: String = text.chars().take_while(|c| *c == marker).collect();
        (fence.len() >= 3).then_some(fence)
    }
}

//! The text between tags, comments and raw blocks.

use super::state::{Lexer, leading_space};
use super::token::TokenKind;
use crate::error::CompileError;
use crate::unicode::is_space;

/// The construct that a `{` opens.
enum Opening {
    Variable,
    Block,
    Comment,
    /// A whole `{% raw %}` tag of this length.
    Raw(usize),
}

impl Lexer<'_> {
    /// Reads text up to the next tag, and the tag.
    pub(super) fn text(&mut self) -> Result<(), CompileError> {
        let Some((at, opening)) = find_opening(self.rest()) else {
            let all = self.rest();
            return self.data(all.len(), all);
        };
        let text = &self.rest()[..at];
        let sign = self.rest().as_bytes().get(at + 2).copied();
        let kept = self.keep(text, sign, matches!(opening, Opening::Variable));
        self.data(at, kept)?;
        match opening {
            Opening::Raw(len) => self.raw(len),
            Opening::Comment => self.comment(signed(sign)),
            Opening::Block => self.block(signed(sign)),
            Opening::Variable => self.variable(signed(sign)),
        }
    }

    /// Returns the rest of the text before a tag after white-space control.
    fn keep<'t>(&self, text: &'t str, sign: Option<u8>, variable: bool) -> &'t str {
        match sign {
            Some(b'-') => text.trim_end_matches(is_space),
            Some(b'+') => text,
            _ if variable => text,
            _ => self.strip_line_start(text),
        }
    }

    /// Drops white space between the start of the line and a tag.
    fn strip_line_start<'t>(&self, text: &'t str) -> &'t str {
        let line_start = text.rfind('\n').map_or(0, |at| at + 1);
        let at_line_start = line_start > 0 || self.line_starting;
        if at_line_start && text[line_start..].chars().all(is_space) { &text[..line_start] } else { text }
    }

    /// Advances over text of which `kept` is written.
    fn data(&mut self, len: usize, kept: &str) -> Result<(), CompileError> {
        if !kept.is_empty() {
            self.push(TokenKind::Data(kept.to_owned()));
        }
        self.advance(len);
        Ok(())
    }

    fn comment(&mut self, opening: usize) -> Result<(), CompileError> {
        self.advance(opening);
        match self.rest().find("#}") {
            Some(end) => {
                let sign = if end > 0 { self.rest().as_bytes().get(end - 1).copied() } else { None };
                self.advance(end + 2);
                self.after_tag(sign);
                Ok(())
            }
            None if self.rest().is_empty() => Ok(()),
            None => self.error("Missing end of comment tag"),
        }
    }

    /// Skips the white space behind a closing tag: all of it after `-`, else one line end.
    pub(super) fn after_tag(&mut self, sign: Option<u8>) {
        let swallowed = match sign {
            Some(b'-') => leading_space(self.rest()),
            Some(b'+') => 0,
            _ => usize::from(self.rest().starts_with('\n')),
        };
        if swallowed > 0 {
            self.advance(swallowed);
        }
    }

    fn raw(&mut self, opening: usize) -> Result<(), CompileError> {
        self.advance(opening);
        let Some((start, len, open_sign)) = find_endraw(self.rest()) else {
            return if self.rest().is_empty() { Ok(()) } else { self.error("Missing end of raw directive") };
        };
        let text = &self.rest()[..start];
        let kept = self.keep(text, open_sign, false);
        self.data(start, kept)?;
        let tag = self.advance(len);
        self.after_tag(tag.as_bytes().get(len - 3).copied());
        Ok(())
    }
}

/// Returns the length of an opening and its sign.
fn signed(sign: Option<u8>) -> usize {
    if matches!(sign, Some(b'-' | b'+')) { 3 } else { 2 }
}

fn find_opening(text: &str) -> Option<(usize, Opening)> {
    let mut from = 0;
    loop {
        let at = from + text[from..].find('{')?;
        let opening = match text.as_bytes().get(at + 1) {
            Some(b'{') => Some(Opening::Variable),
            Some(b'#') => Some(Opening::Comment),
            Some(b'%') => Some(raw_tag(&text[at..]).map_or(Opening::Block, Opening::Raw)),
            _ => None,
        };
        if let Some(opening) = opening {
            return Some((at, opening));
        }
        from = at + 1;
    }
}

/// Returns the length of a leading `{% raw %}` tag with the white space that it removes.
fn raw_tag(text: &str) -> Option<usize> {
    let rest = named_tag(&text[2..], "raw")?;
    if let Some(rest) = rest.strip_prefix("-%}") {
        return Some(text.len() - rest.len() + leading_space(rest));
    }
    rest.strip_prefix("%}").map(|rest| text.len() - rest.len())
}

/// Returns the text behind a tag's name, if it has this name.
fn named_tag<'t>(text: &'t str, name: &str) -> Option<&'t str> {
    let rest = text.strip_prefix(['-', '+']).unwrap_or(text);
    let rest = rest.trim_start_matches(is_space).strip_prefix(name)?;
    Some(rest.trim_start_matches(is_space))
}

/// Returns the start and length of the next `{% endraw %}` tag, and its opening sign.
fn find_endraw(text: &str) -> Option<(usize, usize, Option<u8>)> {
    let mut from = 0;
    loop {
        let at = from + text[from..].find("{%")?;
        if let Some(len) = endraw_tag(&text[at..]) {
            return Some((at, len, text.as_bytes().get(at + 2).copied()));
        }
        from = at + 2;
    }
}

fn endraw_tag(text: &str) -> Option<usize> {
    let rest = named_tag(&text[2..], "endraw")?;
    let rest = rest.strip_prefix(['-', '+']).unwrap_or(rest).strip_prefix("%}")?;
    Some(text.len() - rest.len())
}

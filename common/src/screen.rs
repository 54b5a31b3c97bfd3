//! Text on a terminal.

/// Returns true for a character that a terminal may take as a command, or that reorders text.
#[must_use]
pub fn is_unsafe(c: char) -> bool {
    (c.is_control() && c != '\t') || matches!(c, '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}

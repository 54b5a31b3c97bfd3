//! Python's `bytes`.
//!
//! Bytes are kept as a text with one character each, so that characters of the conversation keep
//! their taint. ASCII represents itself. All other bytes are characters of a private area, and so
//! are the control characters that are white space in texts only. Characters of that area have no
//! case, class or digit value. So the text methods do to them what Python does to bytes.

use crate::taint::{self, Taint};

/// The code point of byte 0 in the private area.
const PRIVATE: u32 = 0xF700;

/// Bytes, as characters.
#[derive(Debug)]
pub(crate) struct Bytes {
    text: String,
    /// The number of bytes, which loops read in every round.
    len: usize,
}

impl Bytes {
    /// Returns the bytes of these characters.
    pub(super) fn from_text(text: String) -> Self {
        let len = text.chars().count();
        Self { text, len }
    }

    /// Returns the characters that represent the bytes.
    pub(crate) fn as_text(&self) -> &str {
        &self.text
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.len == 0
    }

    pub(crate) fn len(&self) -> usize {
        self.len
    }

    /// Iterates over the bytes.
    pub(crate) fn iter(&self) -> impl Iterator<Item = u8> {
        self.text.chars().map(byte_of)
    }
}

/// Returns the character that represents a byte.
pub(crate) fn char_of(byte: u8) -> char {
    let is_plain = byte.is_ascii() && !(0x1c..=0x1f).contains(&byte);
    let code = if is_plain { byte.into() } else { PRIVATE + u32::from(byte) };
    char::from_u32(code).unwrap_or(char::REPLACEMENT_CHARACTER)
}

/// Returns the byte that a character represents, tainted or not.
pub(crate) fn byte_of(character: char) -> u8 {
    (u32::from(taint::strip_char(character)) & 0xff) as u8
}

/// Appends bytes as characters, with this taint.
pub(crate) fn push_bytes(chars: &mut String, bytes: &[u8], taint: Option<Taint>) {
    let character = |&byte: &u8| taint.map_or_else(|| char_of(byte), |taint| taint.taint_char(char_of(byte)));
    chars.extend(bytes.iter().map(character));
}

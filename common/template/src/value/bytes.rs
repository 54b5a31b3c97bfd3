//! Python's `bytes`.
//!
//! Bytes are kept as a text with one character each, so that characters of the conversation keep
//! their taint. ASCII represents itself. All other bytes, and the control characters that are white
//! space in texts only, are characters of a private area, which have no case, class or digit value.
//! So the text methods do to them what Python does to bytes.

use crate::taint::{self, Taint};

/// The code point of byte 0 in the private area.
const PRIVATE: u32 = 0xF700;

/// Bytes, as characters.
#[derive(Debug)]
pub(crate) struct Bytes {
    letters: String,
    /// The number of bytes, which loops read in every round.
    len: usize,
}

impl Bytes {
    /// Returns the bytes of these characters.
    pub(super) fn of_letters(letters: String) -> Self {
        let len = letters.chars().count();
        Self { letters, len }
    }

    pub(crate) fn letters(&self) -> &str {
        &self.letters
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.len == 0
    }

    pub(crate) fn len(&self) -> usize {
        self.len
    }

    /// Iterates over the bytes.
    pub(crate) fn iter(&self) -> impl Iterator<Item = u8> {
        self.letters.chars().map(byte_of)
    }
}

/// Returns the character that represents a byte.
pub(crate) fn letter_of(byte: u8) -> char {
    let is_plain = byte.is_ascii() && !(0x1c..=0x1f).contains(&byte);
    let code = if is_plain { byte.into() } else { PRIVATE + u32::from(byte) };
    char::from_u32(code).unwrap_or(char::REPLACEMENT_CHARACTER)
}

/// Returns the byte that a character represents, tainted or not.
pub(crate) fn byte_of(letter: char) -> u8 {
    (u32::from(taint::strip_char(letter)) & 0xff) as u8
}

/// Appends bytes as characters, with this taint.
pub(crate) fn push_bytes(letters: &mut String, bytes: &[u8], taint: Option<Taint>) {
    let letter = |&byte: &u8| taint.map_or_else(|| letter_of(byte), |taint| taint.taint_char(letter_of(byte)));
    letters.extend(bytes.iter().map(letter));
}

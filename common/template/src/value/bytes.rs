//! Python's `bytes`.
//!
//! Bytes are kept as a text with one letter for each, so that letters of the conversation keep their marks. ASCII stands for
//! itself. All other bytes, and the control characters that only texts take for white space, are letters of a private area,
//! which have no case, no class and no digit value: what Python does to ASCII only is then what it does to texts.

use crate::taint::{self, Taint};

/// The letter of byte 0, if it were of the private area.
const PRIVATE: u32 = 0xF700;

/// Bytes, as letters.
#[derive(Debug)]
pub(crate) struct Bytes {
    letters: String,
    /// How many letters: loops ask for it in every round.
    len: usize,
}

impl Bytes {
    /// Returns the bytes of these letters.
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

    /// The bytes themselves.
    pub(crate) fn iter(&self) -> impl Iterator<Item = u8> {
        self.letters.chars().map(byte_of)
    }
}

/// The letter of a byte.
pub(crate) fn letter_of(byte: u8) -> char {
    let is_plain = byte.is_ascii() && !(0x1c..=0x1f).contains(&byte);
    let code = if is_plain { byte.into() } else { PRIVATE + u32::from(byte) };
    char::from_u32(code).unwrap_or(char::REPLACEMENT_CHARACTER)
}

/// The byte of a letter, marked or not.
pub(crate) fn byte_of(letter: char) -> u8 {
    (u32::from(taint::strip_char(letter)) & 0xff) as u8
}

/// Appends bytes as letters, with a mark if `mark` says so.
pub(crate) fn push_bytes(letters: &mut String, bytes: &[u8], taint: Option<Taint>) {
    let letter = |&byte: &u8| taint.map_or_else(|| letter_of(byte), |taint| taint.taint_char(letter_of(byte)));
    letters.extend(bytes.iter().map(letter));
}

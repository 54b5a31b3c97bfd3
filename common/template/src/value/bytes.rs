//! Python's `bytes`.
//!
//! Bytes are kept as a text with one letter for each, so that letters of the conversation keep their marks. ASCII stands for
//! itself. All other bytes, and the control characters that only texts take for white space, are letters of a private area,
//! which have no case, no class and no digit value: what Python does to ASCII only is then what it does to texts.

use minijinja::Value;

use super::super::error::Fallible;
use super::super::marks;
use super::super::{budget, marks::Marks};
use super::Obj;

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
    /// The value of bytes that are given as letters, charged to the budget.
    pub(crate) fn value(letters: String) -> Fallible<Value> {
        budget::alloc(letters.len())?;
        let len = letters.chars().count();
        Ok(Obj::Bytes(Self { letters, len }).value())
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
    (u32::from(marks::letter(letter)) & 0xff) as u8
}

/// Appends bytes as letters, with a mark if `mark` says so.
pub(crate) fn push_bytes(letters: &mut String, bytes: &[u8], mark: Option<Marks>) {
    let letter = |&byte: &u8| mark.map_or_else(|| letter_of(byte), |marks| marks.mark(letter_of(byte)));
    letters.extend(bytes.iter().map(letter));
}

//! A bounds-checked, buffered reader of little-endian primitives.

use std::fs::File;
use std::io::{BufReader, Read};

use super::error::GgufError;
use super::limits::{MAX_ARRAY_TEXT_BYTES, MAX_ELEMENTS, MAX_HEADER_BYTES, MAX_TEXT_BYTES};

pub(super) struct Cursor<'a> {
    reader: BufReader<&'a File>,
    /// The offset of the next read.
    at: u64,
    /// The length of the file.
    length: u64,
    /// The part of the header that is read, for errors.
    part: String,
    /// The elements of all arrays so far.
    elements: u64,
    /// The bytes of all strings in arrays so far.
    array_text: u64,
}

impl<'a> Cursor<'a> {
    pub(super) fn new(file: &'a File, length: u64) -> Self {
        let part = "header".to_owned();
        Self { reader: BufReader::new(file), at: 0, length, part, elements: 0, array_text: 0 }
    }

    /// Returns the offset of the next read in the file.
    pub(super) fn offset(&self) -> u64 {
        self.at
    }

    /// Names the part of the header that is read next, for errors.
    pub(super) fn enter(&mut self, part: String) {
        self.part = part;
    }

    fn left(&self) -> u64 {
        self.length - self.at
    }

    fn check(&self, what: &'static str, len: u64) -> Result<(), GgufError> {
        if len > self.left() {
            return Err(GgufError::Truncated { what, offset: self.at, needed: len, left: self.left() });
        }
        self.check_limit("bytes of the file's header", self.at + len, MAX_HEADER_BYTES)
    }

    /// Fails if a value of the current part of the header is above a limit.
    pub(super) fn check_limit(&self, what: &'static str, found: u64, limit: u64) -> Result<(), GgufError> {
        if found <= limit {
            return Ok(());
        }
        Err(GgufError::Limit { part: self.part.clone(), what, found, limit })
    }

    fn fill(&mut self, bytes: &mut [u8]) -> Result<(), GgufError> {
        self.reader.read_exact(bytes).map_err(GgufError::Read)?;
        self.at += bytes.len() as u64;
        Ok(())
    }

    pub(super) fn bytes<const N: usize>(&mut self, what: &'static str) -> Result<[u8; N], GgufError> {
        self.check(what, N as u64)?;
        let mut bytes = [0; N];
        self.fill(&mut bytes)?;
        Ok(bytes)
    }

    pub(super) fn u32(&mut self, what: &'static str) -> Result<u32, GgufError> {
        Ok(u32::from_le_bytes(self.bytes(what)?))
    }

    pub(super) fn u64(&mut self, what: &'static str) -> Result<u64, GgufError> {
        Ok(u64::from_le_bytes(self.bytes(what)?))
    }

    pub(super) fn string(&mut self, what: &'static str) -> Result<String, GgufError> {
        let len = self.u64(what)?;
        let offset = self.offset();
        self.check(what, len)?;
        self.check_limit("bytes in a string", len, MAX_TEXT_BYTES)?;
        let mut bytes = vec![0; len as usize];
        self.fill(&mut bytes)?;
        String::from_utf8(bytes).map_err(|_| GgufError::Utf8 { offset })
    }

    /// Reads a string of an array.
    pub(super) fn element(&mut self) -> Result<String, GgufError> {
        let text = self.string("string in an array")?;
        self.array_text += text.len() as u64;
        self.check_limit("bytes in strings of arrays", self.array_text, MAX_ARRAY_TEXT_BYTES)?;
        Ok(text)
    }

    /// Reads `len` elements of `N` bytes.
    pub(super) fn elements<const N: usize, T>(
        &mut self,
        len: u64,
        read: impl Fn([u8; N]) -> T,
    ) -> Result<Vec<T>, GgufError> {
        self.check("array", len * N as u64)?;
        self.count_elements(len)?;
        let mut elements = Vec::with_capacity(len as usize);
        let mut buffer = [[0; N]; 1024];
        let mut rest = len as usize;
        while rest > 0 {
            let now = &mut buffer[..rest.min(1024)];
            self.fill(now.as_flattened_mut())?;
            elements.extend(now.iter().map(|bytes| read(*bytes)));
            rest -= now.len();
        }
        Ok(elements)
    }

    /// Fails if `count` more elements exceed the limit of elements in all arrays.
    pub(super) fn count_elements(&mut self, count: u64) -> Result<(), GgufError> {
        self.elements = self.elements.saturating_add(count);
        self.check_limit("elements in all arrays", self.elements, MAX_ELEMENTS)
    }

    /// Fails if `count` elements of at least `least` bytes each do not fit into the rest of the
    /// file.
    pub(super) fn check_count(&self, what: &'static str, count: u64, least: u64) -> Result<(), GgufError> {
        match count.checked_mul(least) {
            Some(bytes) if bytes <= self.left() => Ok(()),
            _ => Err(GgufError::Count { what, offset: self.offset(), count, left: self.left() }),
        }
    }
}

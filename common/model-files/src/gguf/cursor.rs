//! A bounds-checked reader of little-endian primitives. It does not allocate.

use super::error::GgufError;

pub(super) struct Cursor<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl<'a> Cursor<'a> {
    pub(super) fn new(bytes: &'a [u8]) -> Self {
        Self { bytes, at: 0 }
    }

    /// Returns the offset of the next read in the file.
    pub(super) fn offset(&self) -> u64 {
        self.at as u64
    }

    fn left(&self) -> u64 {
        (self.bytes.len() - self.at) as u64
    }

    pub(super) fn take(&mut self, what: &'static str, len: u64) -> Result<&'a [u8], GgufError> {
        if len > self.left() {
            return Err(GgufError::Truncated { what, offset: self.offset(), needed: len, left: self.left() });
        }
        let end = self.at + len as usize;
        let taken = &self.bytes[self.at..end];
        self.at = end;
        Ok(taken)
    }

    pub(super) fn bytes<const N: usize>(&mut self, what: &'static str) -> Result<[u8; N], GgufError> {
        let mut bytes = [0; N];
        bytes.copy_from_slice(self.take(what, N as u64)?);
        Ok(bytes)
    }

    pub(super) fn u32(&mut self, what: &'static str) -> Result<u32, GgufError> {
        Ok(u32::from_le_bytes(self.bytes(what)?))
    }

    pub(super) fn u64(&mut self, what: &'static str) -> Result<u64, GgufError> {
        Ok(u64::from_le_bytes(self.bytes(what)?))
    }

    pub(super) fn string(&mut self, what: &'static str) -> Result<&'a str, GgufError> {
        let len = self.u64(what)?;
        let offset = self.offset();
        std::str::from_utf8(self.take(what, len)?).map_err(|_| GgufError::Utf8 { offset })
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

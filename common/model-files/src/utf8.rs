//! Joins bytes to whole characters.

/// Joins bytes to text. The whole output is `String::from_utf8_lossy` of all bytes, for any
/// division of the bytes.
#[derive(Debug, Clone, Default)]
pub struct Utf8Stream {
    /// The start of an incomplete character: at most three bytes.
    pending: Vec<u8>,
}

impl Utf8Stream {
    /// Returns the characters that `bytes` completes, and their bytes. Bytes that cannot be part of
    /// a character become U+FFFD.
    pub fn push(&mut self, bytes: &[u8]) -> (String, Vec<u8>) {
        let mut joined = std::mem::take(&mut self.pending);
        joined.extend_from_slice(bytes);
        let mut text = String::with_capacity(joined.len());
        let mut chunks = joined.utf8_chunks().peekable();
        while let Some(chunk) = chunks.next() {
            text.push_str(chunk.valid());
            match chunk.invalid() {
                [] => {}
                start if chunks.peek().is_none() && is_incomplete(start) => self.pending = start.to_vec(),
                _ => text.push(char::REPLACEMENT_CHARACTER),
            }
        }
        joined.truncate(joined.len() - self.pending.len());
        (text, joined)
    }

    /// Ends the text. Returns the bytes of an incomplete character, whose text is U+FFFD.
    pub fn finish(&mut self) -> Vec<u8> {
        std::mem::take(&mut self.pending)
    }
}

/// Returns true if more bytes could complete a character.
fn is_incomplete(bytes: &[u8]) -> bool {
    std::str::from_utf8(bytes).is_err_and(|error| error.error_len().is_none())
}

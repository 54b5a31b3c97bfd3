//! Bytes to whole characters, as they come.

/// Joins bytes to text. Put together, its output is `String::from_utf8_lossy` of all the bytes, however they were cut.
#[derive(Debug, Clone, Default)]
pub struct Utf8Stream {
    /// The start of a character whose end has not come yet: at most three bytes.
    pending: Vec<u8>,
}

impl Utf8Stream {
    /// Every character that `bytes` completes, and the bytes that they were made of. Bytes that can be no part of a character become
    /// U+FFFD.
    pub fn push(&mut self, bytes: Vec<u8>) -> (String, Vec<u8>) {
        let mut joined = std::mem::take(&mut self.pending);
        joined.extend(bytes);
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

    /// Ends the text. The bytes of a character that is still incomplete, which reads as U+FFFD.
    pub fn finish(&mut self) -> Vec<u8> {
        std::mem::take(&mut self.pending)
    }
}

/// Whether more bytes could make a character of these.
fn is_incomplete(bytes: &[u8]) -> bool {
    std::str::from_utf8(bytes).is_err_and(|error| error.error_len().is_none())
}

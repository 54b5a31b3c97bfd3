//! Bytes to whole characters, as they come.

/// Joins bytes to text. Put together, its output is `String::from_utf8_lossy` of all the bytes, however they were cut.
#[derive(Debug, Clone, Default)]
pub struct Utf8Stream {
    /// The start of a character whose end has not come yet: at most three bytes.
    pending: Vec<u8>,
}

impl Utf8Stream {
    /// Adds to `text` every character that `bytes` completes. Bytes that can be no part of a character become U+FFFD.
    pub fn push(&mut self, bytes: &[u8], text: &mut String) {
        if self.pending.is_empty() {
            self.decode(bytes, text);
        } else {
            let mut joined = std::mem::take(&mut self.pending);
            joined.extend_from_slice(bytes);
            self.decode(&joined, text);
        }
    }

    /// Ends the text. A character that is still incomplete becomes U+FFFD.
    pub fn finish(&mut self, text: &mut String) {
        if !std::mem::take(&mut self.pending).is_empty() {
            text.push(char::REPLACEMENT_CHARACTER);
        }
    }

    fn decode(&mut self, bytes: &[u8], text: &mut String) {
        let mut chunks = bytes.utf8_chunks().peekable();
        while let Some(chunk) = chunks.next() {
            text.push_str(chunk.valid());
            match chunk.invalid() {
                [] => {}
                start if chunks.peek().is_none() && is_incomplete(start) => self.pending = start.to_vec(),
                _ => text.push(char::REPLACEMENT_CHARACTER),
            }
        }
    }
}

/// Whether more bytes could make a character of these.
fn is_incomplete(bytes: &[u8]) -> bool {
    std::str::from_utf8(bytes).is_err_and(|error| error.error_len().is_none())
}

//! Checks that a replica's output has at most the requested tokens, and that its text belongs to tokens.

use tandem_common::pb::generate::v1::Delta;

/// Most bytes of a token's text. The longest tokens of known vocabularies have some hundred.
const MAX_TOKEN_BYTES: usize = 4096;
/// Most deltas without output in a row.
const MAX_EMPTY_DELTAS: usize = 64;

/// The output that a call may have, and has had.
#[derive(Debug)]
pub(super) struct OutputBounds {
    /// None: the replica decides.
    max_tokens: Option<usize>,
    tokens: usize,
    /// The larger of the text's bytes and the bytes of [`Delta::bytes`].
    bytes: usize,
    empty_in_a_row: usize,
}

impl OutputBounds {
    /// Returns the bounds of a call for at most this number of tokens.
    pub(super) fn new(max_tokens: Option<usize>) -> Self {
        Self { max_tokens, tokens: 0, bytes: 0, empty_in_a_row: 0 }
    }

    /// Adds a delta.
    ///
    /// # Errors
    /// Describes how the output exceeds the bounds.
    pub(super) fn add(&mut self, delta: &Delta) -> Result<(), String> {
        let (tokens, bytes) = (delta.token_ids.len(), delta.text.len().max(delta.bytes.len()));
        self.empty_in_a_row = if tokens + bytes == 0 { self.empty_in_a_row + 1 } else { 0 };
        self.tokens += tokens;
        self.bytes += bytes;
        if let Some(limit) = self.max_tokens.filter(|limit| self.tokens > *limit) {
            return Err(format!("sent {} tokens, requested at most {limit}", self.tokens));
        }
        // The last delta of a token has its id.
        if self.bytes > (self.tokens + 1).saturating_mul(MAX_TOKEN_BYTES) {
            return Err(format!("sent {} bytes of text for {} tokens", self.bytes, self.tokens));
        }
        if self.empty_in_a_row > MAX_EMPTY_DELTAS {
            return Err(format!("sent {} deltas without output in a row", self.empty_in_a_row));
        }
        Ok(())
    }
}

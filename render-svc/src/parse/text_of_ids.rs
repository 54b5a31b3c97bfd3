//! The text of ids that arrive one after another.

use tandem_model_files::tokenizer::{Tokenizer, TokenizerError};

/// The most ids that are decoded again with the next ones.
const MAX_WINDOW: usize = 64;
/// The most bytes of an incomplete character, each of which is decoded as a replacement character.
const MAX_OPEN: usize = 3;
/// The ids before the next ones that may change their text: a tokenizer may leave out the white space at a start.
const KEPT: usize = 8;

/// Decodes ids in pieces. Together, the texts are that of all ids.
#[derive(Debug, Default)]
pub(crate) struct TextOfIds {
    /// The last ids.
    window: Vec<u32>,
    /// The bytes of their text that are returned.
    returned: usize,
}

impl TextOfIds {
    /// Returns the text that further ids make certain. The bytes of an incomplete character wait.
    ///
    /// # Errors
    /// An id is unknown, or the tokenizer fails.
    pub(crate) fn push(&mut self, tokenizer: &Tokenizer, ids: &[u32]) -> Result<String, TokenizerError> {
        self.window.extend(ids);
        let text = tokenizer.decode(&self.window, false)?;
        let open = text.chars().rev().take(MAX_OPEN).take_while(|c| *c == char::REPLACEMENT_CHARACTER);
        let open: usize = open.map(char::len_utf8).sum();
        let certain = text.len() - open;
        let next = text.get(self.returned..certain).unwrap_or_default().to_owned();
        self.returned = self.returned.max(certain);
        if self.window.len() > MAX_WINDOW {
            self.window.drain(..self.window.len() - KEPT);
            self.returned = tokenizer.decode(&self.window, false)?.len().saturating_sub(open);
        }
        Ok(next)
    }

    /// Returns the rest of the text.
    ///
    /// # Errors
    /// The tokenizer fails.
    pub(crate) fn finish(&mut self, tokenizer: &Tokenizer) -> Result<String, TokenizerError> {
        let text = tokenizer.decode(&self.window, false)?;
        Ok(text.get(self.returned..).unwrap_or_default().to_owned())
    }
}

//! The text of ids that arrive one after another.

use tandem_model_files::tokenizer::{Tokenizer, TokenizerError};

/// Joins the bytes of ids to text, as gen-svc does, except for white space at the start that the tokenizer leaves out.
/// The text does not depend on how the ids are divided into pieces.
#[derive(Debug, Default)]
pub(crate) struct TextOfIds {
    /// The bytes of an incomplete character.
    open: Vec<u8>,
    /// True once text is returned.
    has_text: bool,
}

impl TextOfIds {
    /// Returns the text that further ids cannot change. The bytes of an incomplete character wait.
    ///
    /// # Errors
    /// The tokenizer fails.
    pub(crate) fn push(&mut self, tokenizer: &Tokenizer, ids: &[u32]) -> Result<String, TokenizerError> {
        let mut text = String::new();
        for id in ids {
            self.open.extend_from_slice(tokenizer.token_bytes(*id).unwrap_or_default());
            let start = text.len();
            self.release(&mut text);
            if !self.has_text && text.len() > start {
                self.has_text = true;
                let left_out = left_out(tokenizer, *id, &text[start..])?;
                text.drain(start..start + left_out);
            }
        }
        Ok(text)
    }

    /// Returns the rest of the text.
    pub(crate) fn finish(&mut self) -> String {
        String::from_utf8_lossy(&std::mem::take(&mut self.open)).into_owned()
    }

    /// Moves complete characters to the text. Bytes that no further ones complete become replacement characters.
    fn release(&mut self, text: &mut String) {
        let mut rest = self.open.as_slice();
        for chunk in self.open.utf8_chunks() {
            text.push_str(chunk.valid());
            rest = &rest[chunk.valid().len()..];
            let is_open = chunk.invalid().len() == rest.len() && is_incomplete(rest);
            if is_open {
                break;
            }
            if !chunk.invalid().is_empty() {
                text.push(char::REPLACEMENT_CHARACTER);
                rest = &rest[chunk.invalid().len()..];
            }
        }
        self.open.drain(..self.open.len() - rest.len());
    }
}

/// Returns true if bytes are the start of a character.
fn is_incomplete(bytes: &[u8]) -> bool {
    std::str::from_utf8(bytes).is_err_and(|error| error.valid_up_to() == 0 && error.error_len().is_none())
}

/// Returns how many bytes a tokenizer leaves out at the start of a text: white space.
fn left_out(tokenizer: &Tokenizer, first: u32, text: &str) -> Result<usize, TokenizerError> {
    let decoded = tokenizer.decode(&[first], false)?;
    let start = text.strip_suffix(decoded.as_str()).filter(|start| start.trim().is_empty());
    Ok(start.map_or(0, str::len))
}

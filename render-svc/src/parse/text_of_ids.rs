//! The text of ids that arrive one after another.

use tandem_model_files::tokenizer::{Tokenizer, TokenizerError};
use tandem_model_files::utf8::Utf8Stream;

/// Joins the bytes of ids to text, as gen-svc does, except for white space at the start that the tokenizer leaves out.
/// The text does not depend on how the ids are divided into pieces.
#[derive(Debug, Default)]
pub(crate) struct TextOfIds {
    utf8: Utf8Stream,
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
            let (more, _) = self.utf8.push(tokenizer.token_bytes(*id).unwrap_or_default());
            let left_out = if self.has_text || more.is_empty() { 0 } else { left_out(tokenizer, *id, &more)? };
            self.has_text |= !more.is_empty();
            text.push_str(more.get(left_out..).unwrap_or_default());
        }
        Ok(text)
    }

    /// Returns the rest of the text.
    pub(crate) fn finish(&mut self) -> String {
        String::from_utf8_lossy(&self.utf8.finish()).into_owned()
    }
}

/// Returns how many bytes a tokenizer leaves out at the start of a text: white space.
fn left_out(tokenizer: &Tokenizer, first: u32, text: &str) -> Result<usize, TokenizerError> {
    let decoded = tokenizer.decode(&[first], false)?;
    let start = text.strip_suffix(decoded.as_str()).filter(|start| start.trim().is_empty());
    Ok(start.map_or(0, str::len))
}

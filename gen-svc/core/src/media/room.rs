//! The room for a prompt.

use tandem_model_files::tokenizer::Tokenizer;

use crate::error::RequestError;

/// The tokenizer of a prompt, and the tokens that the prompt and its output may have together.
#[derive(Debug, Clone, Copy)]
pub struct Room<'a> {
    /// The model's tokenizer.
    pub tokenizer: &'a Tokenizer,
    /// The tokens of the context.
    pub context: usize,
}

impl Room<'_> {
    /// Fails if a prompt with these parts cannot fit, before it is tokenized.
    ///
    /// # Errors
    /// [`RequestError::PromptTooLarge`] with the field.
    pub(crate) fn check(self, field: &'static str, parts: &[&str]) -> Result<(), RequestError> {
        let least: usize = parts.iter().map(|part| self.tokenizer.min_tokens(part)).sum();
        if least < self.context {
            return Ok(());
        }
        let bytes = parts.iter().map(|part| part.len()).sum();
        Err(RequestError::PromptTooLarge { field, bytes, context: self.context })
    }
}

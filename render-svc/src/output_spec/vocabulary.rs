//! The vocabulary of a model's output layer.

use serde_json::Value;
use tandem_model_files::artifacts::Artifacts;
use tandem_model_files::tokenizer::Tokenizer;

/// The tokens that a model can generate. A tokenizer may have further tokens, which were added
/// without enlarging the output layer.
pub(super) struct Vocabulary<'a> {
    pub(super) tokenizer: &'a Tokenizer,
    /// Size of the output layer; None if the config does not contain it.
    size: Option<u64>,
}

impl<'a> Vocabulary<'a> {
    pub(super) fn new(tokenizer: &'a Tokenizer, artifacts: &Artifacts) -> Self {
        let config = &artifacts.config;
        let size = config.get("vocab_size").or_else(|| config.get("text_config")?.get("vocab_size"));
        Self { tokenizer, size: size.and_then(Value::as_u64) }
    }

    /// Returns true if the output layer has this id.
    pub(super) fn reaches(&self, id: u32) -> bool {
        self.size.is_none_or(|size| u64::from(id) < size)
    }

    /// Returns the id of the token with this text.
    pub(super) fn id(&self, text: &str) -> Option<u32> {
        self.tokenizer.token_to_id(text).filter(|&id| self.reaches(id))
    }

    /// Returns the id of the special token with this text.
    pub(super) fn special_id(&self, text: &str) -> Option<u32> {
        self.id(text).filter(|&id| self.tokenizer.is_special(id))
    }
}

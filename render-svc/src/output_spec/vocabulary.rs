//! The vocabulary of a model's output layer.

use tandem_model_files::artifacts::Artifacts;
use tandem_model_files::tokenizer::Tokenizer;

/// The tokens that a model can generate. A tokenizer may have further tokens, which were added
/// without enlarging the output layer.
pub(super) struct Vocabulary<'a> {
    pub(super) tokenizer: &'a Tokenizer,
    /// Size of the output layer; that of the tokenizer if the config does not contain it.
    size: u64,
}

/// Returns the size of a model's output layer if its config contains it.
pub(super) fn size(artifacts: &Artifacts) -> Option<u64> {
    let config = &artifacts.config;
    config.get("vocab_size").or_else(|| config.get("text_config")?.get("vocab_size"))?.as_u64()
}

impl<'a> Vocabulary<'a> {
    pub(super) fn new(tokenizer: &'a Tokenizer, artifacts: &Artifacts) -> Self {
        Self { tokenizer, size: size(artifacts).unwrap_or(tokenizer.vocab_size() as u64) }
    }

    /// Returns true if the output layer has this id.
    pub(super) fn reaches(&self, id: u32) -> bool {
        u64::from(id) < self.size
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

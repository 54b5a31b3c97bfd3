//! What becomes of a token, by its id alone.

use std::collections::HashSet;

use tandem_model_files::tokenizer::Tokenizer;

use super::Spec;

/// What becomes of one token.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TokenAction {
    /// Its bytes are text.
    Text,
    /// It leaves nothing.
    Drop,
    /// It ends the output and leaves nothing.
    End,
    /// It ends the output, and its bytes are the last of the text.
    TextThenEnd,
}

impl TokenAction {
    /// Whether the token's bytes are text.
    pub fn shows(self) -> bool {
        matches!(self, Self::Text | Self::TextThenEnd)
    }

    /// Whether the token ends the output.
    pub fn ends(self) -> bool {
        matches!(self, Self::End | Self::TextThenEnd)
    }
}

/// The action of every id, as an output's spec and the tokenizer settle it.
#[derive(Debug, Clone)]
pub struct TokenActions {
    end: HashSet<u32>,
    dropped: HashSet<u32>,
    passed: HashSet<u32>,
}

impl TokenActions {
    /// From an output's spec.
    pub fn new(spec: &Spec) -> Self {
        let set = |ids: &[u32]| ids.iter().copied().collect();
        Self { end: set(&spec.end_token_ids), dropped: set(&spec.dropped), passed: set(&spec.passed) }
    }

    /// The action of `id`.
    pub fn of(&self, id: u32, tokenizer: &Tokenizer) -> TokenAction {
        let passes = self.passed.contains(&id);
        match (self.end.contains(&id), passes) {
            (true, true) => TokenAction::TextThenEnd,
            (true, false) => TokenAction::End,
            (false, true) => TokenAction::Text,
            (false, false) if self.dropped.contains(&id) || tokenizer.is_special(id) => TokenAction::Drop,
            (false, false) => TokenAction::Text,
        }
    }
}

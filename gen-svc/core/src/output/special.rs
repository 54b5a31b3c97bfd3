//! The effect of a token on the output, by its id.

use std::collections::HashSet;

use tandem_model_files::tokenizer::Tokenizer;

use super::policy::OutputPolicy;

/// The effect of a token on the output.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TokenAction {
    /// The token's bytes are text.
    Text,
    /// The token adds no text.
    Drop,
    /// The token ends the output and adds no text.
    End,
    /// The token ends the output, and its bytes are the last text.
    TextThenEnd,
}

impl TokenAction {
    /// Returns true if the token's bytes are text.
    pub fn shows(self) -> bool {
        matches!(self, Self::Text | Self::TextThenEnd)
    }

    /// Returns true if the token ends the output.
    pub fn ends(self) -> bool {
        matches!(self, Self::End | Self::TextThenEnd)
    }
}

/// The actions of token ids. They follow from the output policy and the tokenizer.
#[derive(Debug, Clone)]
pub struct TokenActions {
    end: HashSet<u32>,
    dropped: HashSet<u32>,
    passed: HashSet<u32>,
}

impl TokenActions {
    /// Creates the actions of an output policy.
    pub fn new(policy: &OutputPolicy) -> Self {
        let set = |ids: &[u32]| ids.iter().copied().collect();
        Self { end: set(&policy.end_token_ids), dropped: set(&policy.dropped), passed: set(&policy.passed) }
    }

    /// Returns the action of `id`.
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

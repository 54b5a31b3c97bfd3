//! The order of reasoning and grammar in an output.

use tandem_model_files::tokenizer::Tokenizer;

use crate::output::OutputPipeline;
use crate::output::reasoning::Markers;

/// Whether a grammar binds the next token of an output.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stage {
    /// There is no grammar.
    NoGrammar,
    /// The grammar binds the token, unless it is a start marker of reasoning.
    Opening,
    /// The grammar begins after the end of reasoning.
    Waiting,
    /// The grammar binds the token and all later ones.
    Bound,
}

impl Stage {
    /// Returns the stage after a token, with which the output `is_reasoning` or not.
    #[must_use]
    pub fn after(self, is_reasoning: bool) -> Self {
        match self {
            Self::NoGrammar => Self::NoGrammar,
            Self::Opening | Self::Waiting if is_reasoning => Self::Waiting,
            Self::Opening | Self::Waiting | Self::Bound => Self::Bound,
        }
    }
}

/// The tokens that reasoning and a grammar behind it ask for.
#[derive(Debug, Clone, Default)]
pub struct ReasoningRule {
    /// Start markers that are one token. One may come before the grammar.
    pub start: Vec<u32>,
    /// The tokens of the end marker that is chosen at the limit: of the first that is one token, else of the first
    /// text. Empty: there is none.
    pub end: Vec<u32>,
    /// Ids that end the model's turn. They are not chosen while a grammar waits.
    pub ends_of_turn: Vec<u32>,
    /// The size of the vocabulary.
    pub vocabulary: usize,
}

impl ReasoningRule {
    /// Returns the rule of these markers. `has_start`: a start marker may come before the grammar.
    pub(super) fn new(
        tokenizer: &Tokenizer,
        markers: &Markers,
        has_start: bool,
        ends_of_turn: &[u32],
        vocabulary: usize,
    ) -> Self {
        let Markers { start, end } = markers;
        let text = || end.strings.first().and_then(|text| tokenizer.encode(text, false).ok()).unwrap_or_default();
        let is_marker = |id: &u32| start.token_ids.contains(id) || end.token_ids.contains(id);
        Self {
            start: if has_start { start.token_ids.clone() } else { Vec::new() },
            end: end.token_ids.first().map_or_else(text, |&id| vec![id]),
            ends_of_turn: ends_of_turn.iter().copied().filter(|id| !is_marker(id)).collect(),
            vocabulary,
        }
    }

    /// Returns the stage before the first token. A grammar does not wait for an end that cannot be found.
    pub(super) fn first_stage(&self, has_grammar: bool, is_reasoning: bool) -> Stage {
        match (has_grammar, is_reasoning && !self.end.is_empty()) {
            (false, _) => Stage::NoGrammar,
            (true, true) => Stage::Waiting,
            (true, false) if self.start.is_empty() || self.end.is_empty() => Stage::Bound,
            (true, false) => Stage::Opening,
        }
    }

    /// Returns the token that ends the reasoning of an output once it has reached its limit. Its tokens after the
    /// limit are the first ones of the end marker.
    #[must_use]
    pub fn forced(&self, limit: Option<usize>, output: &OutputPipeline) -> Option<u32> {
        let beyond = output.reasoning_tokens().checked_sub(limit?)?;
        let place = beyond.checked_rem(self.end.len()).filter(|_| output.is_reasoning())?;
        Some(self.end[place])
    }
}

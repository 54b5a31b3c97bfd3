//! The rows of logits that log-probabilities of prompts need. A row is large, so that a step has few.
//!
//! Every sequence may have a row in each step. Sequences that report their prompts share a fixed number of further
//! rows, so that each advances in every step with its tokens. An image whose tokens attend to each other
//! is computed at once. If it needs more rows, it is the only one in its step: that of the highest rank.

use super::requests::RequestState;
use super::sequence::{Sequence, SequenceId};

/// Maximum number of rows of a sequence in a step. All but the first are shared with other sequences.
pub(super) const MAX_PROMPT_ROWS: usize = 32;

/// The rows of one step that are left.
#[derive(Debug)]
pub(super) struct PromptRows {
    shared: usize,
    /// The number of sequences that have no rows yet.
    sequences: usize,
    /// The sequence that may compute an image whose rows exceed its share.
    with_image: Option<SequenceId>,
}

impl PromptRows {
    /// Creates the rows of a step for these prompts.
    pub(super) fn new<'a>(prompts: impl Iterator<Item = (&'a Sequence, &'a RequestState)>) -> Self {
        let reporting: Vec<_> = prompts.filter(|(sequence, state)| sequence.reports_prompt(state)).collect();
        let with_image = reporting.iter().filter(|(sequence, state)| sequence.step_rows(state, 1) > 1);
        Self {
            shared: MAX_PROMPT_ROWS - 1,
            sequences: reporting.len(),
            with_image: with_image.map(|(sequence, _)| *sequence).min_by_key(|it| it.rank()).map(Sequence::id),
        }
    }

    /// Returns how many tokens of a prompt the step computes: about `most`, or none. Takes their rows.
    pub(super) fn take(&mut self, sequence: &Sequence, state: &RequestState, most: usize) -> usize {
        if !sequence.reports_prompt(state) {
            return sequence.step_tokens(state, most);
        }
        let own = 1 + self.shared.div_ceil(self.sequences.max(1));
        let count = sequence.step_rows(state, most.min(own));
        if count > own && self.with_image != Some(sequence.id()) {
            return 0;
        }
        self.sequences = self.sequences.saturating_sub(1);
        self.shared -= count.min(own).saturating_sub(1);
        count
    }
}

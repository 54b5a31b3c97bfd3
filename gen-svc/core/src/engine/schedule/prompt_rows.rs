//! The rows of logits that log-probabilities of prompts need. A row is large, so that a step has few.
//!
//! Every sequence may have a row in each step. Sequences that report their prompts share a fixed number of further
//! rows, so that each advances in every step with its tokens. An image whose tokens attend to each other
//! is computed at once. If it needs more rows, it is the only one in its step: that of the highest rank.

use super::snapshot::Running;

/// Maximum number of rows of a sequence in a step. All but the first are shared with other sequences.
pub(in crate::engine) const MAX_PROMPT_ROWS: usize = 32;

/// The rows of one step that are left.
#[derive(Debug)]
pub(super) struct PromptRows {
    shared: usize,
    /// The number of sequences that have no rows yet.
    sequences: usize,
    /// The sequence that may compute an image whose rows exceed its share.
    with_image: Option<usize>,
}

impl PromptRows {
    /// Creates the rows of a step for the prompts among the running sequences.
    pub(super) fn new(running: &[Running]) -> Self {
        let reports = |sequence: &&Running| sequence.is_prefill() && sequence.reports_prompt;
        Self {
            shared: MAX_PROMPT_ROWS - 1,
            sequences: running.iter().filter(reports).count(),
            with_image: running.iter().position(|it| reports(&it) && it.tokens_with_rows(1) > 1),
        }
    }

    /// Returns how many tokens of the `at`-th sequence's prompt the step computes: about `most`, or none. Takes
    /// their rows.
    pub(super) fn take(&mut self, at: usize, sequence: &Running, most: usize) -> usize {
        if !sequence.reports_prompt {
            return sequence.tokens(most);
        }
        let own = 1 + self.shared.div_ceil(self.sequences.max(1));
        let count = sequence.tokens_with_rows(most.min(own));
        if count > own && self.with_image != Some(at) {
            return 0;
        }
        self.sequences = self.sequences.saturating_sub(1);
        self.shared -= count.min(own).saturating_sub(1);
        count
    }
}

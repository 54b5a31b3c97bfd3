//! The sequences at one moment, in the numbers that the rules read.

use std::ops::Range;
use std::time::Duration;

/// A waiting sequence that could start.
#[derive(Debug, Clone, Copy, Default)]
pub struct Waiting {
    /// Its place in the queue, in the order of rank.
    pub at: usize,
    pub priority: i32,
    /// The running sequences of its caller.
    pub of_caller: usize,
    pub waited: Duration,
    /// The number of its caller's last turn among the long waits. 0: the caller had none.
    pub last_turn: u64,
}

/// A running sequence. A list of them is in the order of rank.
#[derive(Debug, Clone, Default)]
pub(super) struct Running {
    pub(super) priority: i32,
    /// The number of its caller.
    pub(super) caller: usize,
    /// The running sequences of its caller.
    pub(super) of_caller: usize,
    /// How long its channel has been full.
    pub(super) unread: Duration,
    /// The tokens that are not computed: more than one during prefill.
    pub(super) pending: usize,
    /// The tokens that steps can compute now. 0 while its channel is full or the features of its next image are
    /// missing.
    pub(super) available: usize,
    /// The last step that computed a token after the prompt.
    pub(super) last_step: u64,
    /// True if log-probabilities of the prompt must still be sent.
    pub(super) reports_prompt: bool,
    /// The images whose tokens attend to each other, by their distance from the next token.
    pub(super) images: Vec<Range<usize>>,
}

impl Running {
    /// Returns true if the next step can compute a token.
    pub(super) fn is_ready(&self) -> bool {
        self.available > 0
    }

    /// Returns true if it is ready and in decode.
    pub(super) fn is_decode(&self) -> bool {
        self.is_ready() && self.pending == 1
    }

    /// Returns true if it is ready and in prefill.
    pub(super) fn is_prefill(&self) -> bool {
        self.is_ready() && self.pending > 1
    }

    /// Returns the number of tokens that a step may compute: up to `most`, or more up to the end of an image
    /// whose tokens attend to each other.
    pub(super) fn tokens(&self, most: usize) -> usize {
        let count = most.min(self.available);
        self.cut_image(count).map_or(count, |image| image.end)
    }

    /// Returns the number of tokens that a step may compute with their rows of logits: up to `most`, or more if
    /// they begin with an image whose tokens attend to each other.
    pub(super) fn tokens_with_rows(&self, most: usize) -> usize {
        let count = most.min(self.available);
        self.cut_image(count).map_or(count, |image| if image.start > 0 { image.start } else { image.end })
    }

    /// Returns the image with tokens on both sides of `end`.
    fn cut_image(&self, end: usize) -> Option<&Range<usize>> {
        self.images.iter().find(|image| image.start < end && end < image.end)
    }
}

//! How far a request is. The engine's thread writes it, and the request's call reads it while no
//! event is due.

use std::sync::atomic::{AtomicUsize, Ordering};

/// The state of one request.
#[derive(Debug, Default)]
pub struct RequestProgress {
    /// The place in the queue, or 0 outside of it.
    queue_place: AtomicUsize,
    computed_prompt_tokens: AtomicUsize,
    completion_tokens: AtomicUsize,
}

impl RequestProgress {
    /// Returns the place in the queue while the request waits there. 1 is the first.
    #[must_use]
    pub fn queue_place(&self) -> Option<usize> {
        Some(self.queue_place.load(Ordering::Relaxed)).filter(|place| *place > 0)
    }

    /// Returns the number of prompt tokens that are computed or were found in the prefix cache.
    #[must_use]
    pub fn computed_prompt_tokens(&self) -> usize {
        self.computed_prompt_tokens.load(Ordering::Relaxed)
    }

    /// Returns the number of generated tokens of all outputs, with those before a resume.
    #[must_use]
    pub fn completion_tokens(&self) -> usize {
        self.completion_tokens.load(Ordering::Relaxed)
    }

    /// Sets the number of generated tokens.
    pub(super) fn set_completion(&self, tokens: usize) {
        self.completion_tokens.store(tokens, Ordering::Relaxed);
    }

    /// Sets the place in the queue, from 1.
    pub(crate) fn set_queue_place(&self, place: usize) {
        self.queue_place.store(place, Ordering::Relaxed);
    }

    /// Records that the request has left the queue.
    pub(super) fn leave_queue(&self) {
        self.set_queue_place(0);
    }

    /// Sets the number of computed prompt tokens.
    pub(crate) fn set_computed(&self, tokens: usize) {
        self.computed_prompt_tokens.store(tokens, Ordering::Relaxed);
    }
}

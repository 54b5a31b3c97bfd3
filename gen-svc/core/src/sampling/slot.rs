//! The places where a sampler counts the tokens of outputs with penalties.

use std::sync::Arc;

use parking_lot::Mutex;

/// The slots that are added at once.
const GROWTH: usize = 8;

/// The place of one output's counts. Dropping it frees the place.
#[derive(Debug)]
pub struct Slot {
    index: usize,
    free: Arc<Mutex<Vec<usize>>>,
}

impl Slot {
    pub fn index(&self) -> usize {
        self.index
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        self.free.lock().push(self.index);
    }
}

/// The slots of a sampler.
#[derive(Debug, Default)]
pub struct SlotPool {
    free: Arc<Mutex<Vec<usize>>>,
    count: usize,
}

impl SlotPool {
    /// Returns a free slot. Adds slots if there is none.
    pub fn take(&mut self) -> Slot {
        let mut free = self.free.lock();
        if free.is_empty() {
            free.extend((self.count..self.count + GROWTH).rev());
            self.count += GROWTH;
        }
        let index = free.pop().unwrap_or_default();
        Slot { index, free: Arc::clone(&self.free) }
    }

    /// Returns the number of slots, used ones included.
    pub fn count(&self) -> usize {
        self.count
    }
}

/// The tokens of an output so far.
#[derive(Debug, Clone, Copy)]
pub struct History<'a> {
    /// The place of their counts.
    pub slot: &'a Slot,
    /// The tokens of the prompt.
    pub prompt: &'a [u32],
    /// The tokens of the output.
    pub output: &'a [u32],
    /// The tokens after these that are only on the device. The slot counts them already.
    pub awaited: usize,
}

impl History<'_> {
    /// Returns the number of tokens.
    pub fn tokens(&self) -> usize {
        self.prompt.len() + self.output.len() + self.awaited
    }

    /// Returns the index of the slot, and the number of tokens with the next one.
    pub fn after_next(&self) -> (usize, usize) {
        (self.slot.index, self.tokens() + 1)
    }
}

//! The tokens of outputs with penalties, counted on the device.
//!
//! Shapes: S slots, V vocabulary.

use std::sync::Arc;

use parking_lot::Mutex;
use tch::{Device, Kind, Tensor};

use crate::error::Error;

/// The slots that are added at once.
const GROWTH: usize = 8;
/// Added to a token's number for each occurrence in the output.
pub(super) const OCCURRENCE: i64 = 2;

/// The place of one output's counts. Dropping it frees the place.
#[derive(Debug)]
pub struct Slot {
    index: usize,
    free: Arc<Mutex<Vec<usize>>>,
}

impl Slot {
    pub(super) fn index(&self) -> i64 {
        self.index as i64
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        self.free.lock().push(self.index);
    }
}

/// The tokens of an output so far.
#[derive(Debug, Clone, Copy)]
pub struct History<'a> {
    /// The place of their counts on the device.
    pub slot: &'a Slot,
    /// The tokens of the prompt.
    pub prompt: &'a [u32],
    /// The tokens of the output.
    pub output: &'a [u32],
}

/// The counts of all outputs with penalties.
#[derive(Debug)]
pub(super) struct Slots {
    vocabulary: i64,
    device: Device,
    /// `[S, V]`. A token's number is twice its occurrences in the output, and one more if the prompt has
    /// it.
    pub(super) counts: Tensor,
    /// The number of tokens that each slot counts. None: its counts are of another output.
    counted: Vec<Option<usize>>,
    free: Arc<Mutex<Vec<usize>>>,
}

impl Slots {
    pub(super) fn new(vocabulary: usize, device: Device) -> Self {
        Self { vocabulary: vocabulary as i64, device, counts: Tensor::new(), counted: Vec::new(), free: Arc::default() }
    }

    /// Returns a free slot.
    pub(super) fn take(&mut self) -> Slot {
        let mut free = self.free.lock();
        if free.is_empty() {
            free.extend((self.counted.len()..self.counted.len() + GROWTH).rev());
            self.counted.resize(self.counted.len() + GROWTH, None);
        }
        let index = free.pop().unwrap_or_default();
        self.counted[index] = None;
        Slot { index, free: Arc::clone(&self.free) }
    }

    /// Counts the tokens of outputs whose slots do not have exactly their tokens.
    pub(super) fn update<'a>(&mut self, histories: impl Iterator<Item = History<'a>>) -> Result<(), Error> {
        self.grow()?;
        for History { slot, prompt, output } in histories {
            if self.counted[slot.index] != Some(prompt.len() + output.len()) {
                let counts = Tensor::f_from_slice(&self.count(prompt, output))?;
                self.counts.f_select(0, slot.index())?.f_copy_(&counts)?;
            }
            // Until the row's token is counted too.
            self.counted[slot.index] = None;
        }
        Ok(())
    }

    /// Records that a slot counts the drawn token after these.
    pub(super) fn advance(&mut self, History { slot, prompt, output }: History<'_>) {
        self.counted[slot.index] = Some(prompt.len() + output.len() + 1);
    }

    fn grow(&mut self) -> Result<(), Error> {
        let has = if self.counts.defined() { self.counts.size()[0] } else { 0 };
        let missing = self.counted.len() as i64 - has;
        if missing > 0 {
            let more = Tensor::f_zeros([missing, self.vocabulary], (Kind::Int, self.device))?;
            self.counts = if has == 0 { more } else { Tensor::f_cat(&[&self.counts, &more], 0)? };
        }
        Ok(())
    }

    fn count(&self, prompt: &[u32], output: &[u32]) -> Vec<i32> {
        let mut counts = vec![0; self.vocabulary as usize];
        prompt.iter().for_each(|&id| counts[id as usize] = 1);
        output.iter().for_each(|&id| counts[id as usize] += OCCURRENCE as i32);
        counts
    }
}

//! The tokens of outputs with penalties, counted on the device.
//!
//! Shapes: S slots, V vocabulary.

use std::collections::BTreeMap;

use tandem_core::sampling::slot::{History, Slot, SlotPool};
use tch::{Device, Kind, Tensor};

use crate::device::upload::{Part, Sent, Upload};
use crate::error::Error;

/// Added to a token's number for each occurrence in the output.
pub(super) const OCCURRENCE: i64 = 2;

/// The counts of slots that do not have their output's tokens, in the upload.
#[derive(Debug)]
pub(super) struct Recount {
    slots: Part,
    /// Places in `[S * V]`, distinct, and the number of each.
    places: Part,
    numbers: Part,
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
    pool: SlotPool,
}

impl Slots {
    pub(super) fn new(vocabulary: usize, device: Device) -> Self {
        Self {
            vocabulary: vocabulary as i64,
            device,
            counts: Tensor::new(),
            counted: Vec::new(),
            pool: SlotPool::default(),
        }
    }

    /// Returns V.
    pub(super) fn vocabulary(&self) -> usize {
        self.vocabulary as usize
    }

    /// Returns a free slot.
    pub(super) fn take(&mut self) -> Slot {
        let slot = self.pool.take();
        self.counted.resize(self.pool.count(), None);
        self.counted[slot.index()] = None;
        slot
    }

    /// Adds to an upload the counts of outputs whose slots do not have exactly their tokens.
    pub(super) fn plan<'a>(
        &mut self,
        histories: impl Iterator<Item = History<'a>>,
        upload: &mut Upload,
    ) -> Option<Recount> {
        let (mut slots, mut places, mut numbers) = (Vec::new(), Vec::new(), Vec::new());
        for history in histories {
            let History { slot, prompt, output, awaited } = history;
            // Unknown until the row's token is counted too.
            if self.counted[slot.index()].take() != Some(history.tokens()) {
                debug_assert_eq!(awaited, 0, "tokens that are only on the device are counted there");
                slots.push(slot.index() as i64);
                for (id, number) in counts(prompt, output) {
                    places.push(slot.index() as i64 * self.vocabulary + i64::from(id));
                    numbers.push(number);
                }
            }
        }
        if slots.is_empty() {
            return None;
        }
        Some(Recount { slots: upload.add(slots), places: upload.add(places), numbers: upload.add(numbers) })
    }

    /// Writes planned counts. Every slot that was taken has room afterwards.
    pub(super) fn write(&mut self, recount: Option<&Recount>, sent: &Sent) -> Result<(), Error> {
        self.grow()?;
        let Some(Recount { slots, places, numbers }) = recount else { return Ok(()) };
        drop(self.counts.f_index_fill_(0, &sent.get(*slots)?, 0_i64)?);
        drop(self.counts.f_view([-1])?.f_index_copy_(0, &sent.get(*places)?, &sent.get(*numbers)?)?);
        Ok(())
    }

    /// Records that the slot of this index counts `tokens` tokens.
    pub(super) fn set_counted(&mut self, index: usize, tokens: usize) {
        self.counted[index] = Some(tokens);
    }

    /// Records that the slot's counts are wrong.
    pub(super) fn forget(&mut self, slot: &Slot) {
        self.counted[slot.index()] = None;
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
}

/// Returns the number of each token that occurs.
fn counts(prompt: &[u32], output: &[u32]) -> BTreeMap<u32, i32> {
    let mut counts: BTreeMap<u32, i32> = prompt.iter().map(|&id| (id, 1)).collect();
    output.iter().for_each(|&id| *counts.entry(id).or_default() += OCCURRENCE as i32);
    counts
}

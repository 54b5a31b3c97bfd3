//! Samples rows of logits on the host.

use tandem_kernels::vocab;

use super::filter::{candidates, draw, greedy};
use super::logprobs::Logprobs;
use super::parameters::Sampling;
use super::penalties::{Penalties, add_bias};
use super::plan::{Chosen, Draw};
use super::slot::{History, Slot, SlotPool};
use crate::error::StepError;

/// Samples rows on the host.
#[derive(Debug, Default)]
pub struct HostSampler {
    slots: SlotPool,
    /// The counts of each slot. `None`: the slot has no counts of its output.
    counts: Vec<Option<Counts>>,
}

/// The counted tokens of an output.
#[derive(Debug)]
struct Counts {
    tokens: usize,
    penalties: Penalties,
}

impl HostSampler {
    /// Returns a place for the counts of one output's tokens, if the parameters need it.
    #[must_use]
    pub fn slot(&mut self, sampling: &Sampling) -> Option<Slot> {
        if !sampling.has_penalties() {
            return None;
        }
        let slot = self.slots.take();
        self.counts.resize_with(self.slots.count(), || None);
        self.counts[slot.index()] = None;
        Some(slot)
    }

    /// Draws a token, with the log-probabilities of this number of likeliest tokens. The content of `logits`
    /// is undefined afterwards.
    ///
    /// # Errors
    /// [`StepError::NotFinite`] if no logit is a finite number.
    pub fn draw(&mut self, logits: &mut [f32], draw: &Draw<'_>, logprobs: Option<usize>) -> Result<Chosen, StepError> {
        let raw = logprobs.map(|count| (logits.to_vec(), count));
        let id = self.next(logits, draw)?;
        Ok(Chosen { id, logprobs: raw.map(|(raw, count)| Logprobs::new(&raw, id, count)) })
    }

    fn next(&mut self, logits: &mut [f32], plan: &Draw<'_>) -> Result<u32, StepError> {
        let sampling = plan.sampling;
        if let Some(words) = plan.allowed {
            vocab::mask(logits, words);
        }
        add_bias(logits, &sampling.logit_bias);
        let counts = plan.history.map(|history| self.counted(sampling, history));
        counts.iter().for_each(|counts| counts.penalties.apply(logits));
        for &id in plan.forbidden {
            if let Some(logit) = logits.get_mut(id as usize) {
                *logit = f32::NEG_INFINITY;
            }
        }
        let (id, best) = greedy(logits)?;
        let id = if sampling.temperature == 0.0 {
            id
        } else {
            draw(&candidates(sampling, logits, best), plan.random).ok_or(StepError::NotFinite)?
        };
        if let Some(counts) = counts {
            counts.tokens += 1;
            counts.penalties.add(id);
        }
        Ok(id)
    }

    /// Returns the counts of the tokens so far. Counts them if the slot does not have exactly these.
    fn counted(&mut self, sampling: &Sampling, history: History<'_>) -> &mut Counts {
        let counts = &mut self.counts[history.slot.index()];
        counts.take_if(|counts| counts.tokens != history.tokens());
        counts.get_or_insert_with(|| {
            let mut penalties = Penalties::new(sampling, history.prompt);
            history.output.iter().for_each(|&id| penalties.add(id));
            Counts { tokens: history.tokens(), penalties }
        })
    }
}

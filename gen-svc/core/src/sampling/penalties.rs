//! Changes of logits before a token is chosen: bias and penalties.

use std::collections::{BTreeMap, BTreeSet};

use super::parameters::Sampling;

/// The penalties of an output, and the tokens that they apply to.
#[derive(Debug)]
pub(super) struct Penalties {
    repetition: f32,
    presence: f32,
    frequency: f32,
    /// Tokens in the prompt and the output.
    seen: BTreeSet<u32>,
    /// Tokens in the output, with their number of occurrences.
    generated: BTreeMap<u32, u32>,
}

impl Penalties {
    pub(super) fn new(sampling: &Sampling, prompt: &[u32]) -> Self {
        let repeats = sampling.repetition_penalty != 1.0;
        Self {
            repetition: sampling.repetition_penalty,
            presence: sampling.presence_penalty,
            frequency: sampling.frequency_penalty,
            seen: if repeats { prompt.iter().copied().collect() } else { BTreeSet::new() },
            generated: BTreeMap::new(),
        }
    }

    /// Adds a token of the output.
    pub(super) fn add(&mut self, id: u32) {
        if self.repetition != 1.0 {
            self.seen.insert(id);
        }
        if self.presence != 0.0 || self.frequency != 0.0 {
            *self.generated.entry(id).or_default() += 1;
        }
    }

    /// Applies the repetition penalty, then presence and frequency penalty. In the order of transformers,
    /// they follow the bias.
    pub(super) fn apply(&self, logits: &mut [f32]) {
        let penalty = self.repetition;
        for &id in &self.seen {
            change(logits, id, |logit| if logit < 0.0 { logit * penalty } else { logit / penalty });
        }
        for (&id, &count) in &self.generated {
            change(logits, id, |logit| logit - self.presence - self.frequency * count as f32);
        }
    }
}

/// Adds the bias of tokens.
pub(super) fn add_bias(logits: &mut [f32], bias: &[(u32, f32)]) {
    for &(id, bias) in bias {
        change(logits, id, |logit| logit + bias);
    }
}

fn change(logits: &mut [f32], id: u32, changed: impl Fn(f32) -> f32) {
    if let Some(logit) = logits.get_mut(id as usize) {
        *logit = changed(*logit).clamp(f32::MIN, f32::MAX); // an extreme penalty must not make infinities
    }
}

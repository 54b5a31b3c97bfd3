//! The host's sampler for one output, which remembers the tokens.

use tandem_core::error::StepError;
use tandem_core::sampling::{Draw, History, HostSampler, Sampling, Slot, uniform};

/// The host's sampler for one output.
#[derive(Debug)]
pub struct Sampler {
    sampler: HostSampler,
    slot: Option<Slot>,
    sampling: Sampling,
    prompt: Vec<u32>,
    output: Vec<u32>,
}

impl Sampler {
    /// Creates the sampler of the first output that continues `prompt`.
    #[must_use]
    pub fn new(sampling: Sampling, prompt: &[u32]) -> Self {
        let mut sampler = HostSampler::default();
        let slot = sampler.slot(&sampling);
        Self { sampler, slot, sampling, prompt: prompt.to_vec(), output: Vec::new() }
    }

    /// Returns the sampler of an output that already has these tokens.
    #[must_use]
    pub fn after(self, output: &[u32]) -> Self {
        Self { output: output.to_vec(), ..self }
    }

    /// Draws the token at `position`.
    ///
    /// # Errors
    /// [`StepError::NotFinite`].
    pub fn next(&mut self, logits: &mut [f32], position: u64, forbidden: &[u32]) -> Result<u32, StepError> {
        let Self { sampler, slot, sampling, prompt, output } = self;
        let history = slot.as_ref().map(|slot| History { slot, prompt, output, awaited: 0 });
        let random = uniform(sampling.seed, 0, position);
        let draw = Draw { sampling, random, forbidden, allowed: None, history };
        let id = sampler.draw(logits, &draw, None)?.id;
        output.push(id);
        Ok(id)
    }
}

//! From logits to the next token.
//!
//! The steps, their order and their meaning are those of transformers' `generate`. They are bias,
//! repetition penalty, tokens that may not end the output yet, temperature, top-k, top-p, min-p,
//! typical-p, draw. Presence and frequency penalty, which transformers does not have, follow the
//! repetition penalty and are defined as in OpenAI's API.
//!
//! A random number depends only on (seed, output, position), and the draw visits the kept tokens in
//! the order of their ids. So a seeded request gets the same tokens in any batch.

pub mod device;
mod filter;
mod logprobs;
pub(crate) mod parameters;
mod penalties;
mod random;

pub use logprobs::Logprobs;
pub use parameters::{PARAMETER_NAMES, Sampling, SamplingOptions};
pub use random::uniform;

use tandem_kernels::IsaLevel;
use tandem_kernels::vocab;

use crate::error::Error;
use filter::{candidates, draw, total};
use penalties::Penalties;

/// Chooses the tokens of one output, on the host.
#[derive(Debug)]
pub struct Sampler {
    sampling: Sampling,
    output: u32,
    penalties: Penalties,
}

impl Sampler {
    /// Creates the sampler of one output that continues `prompt`.
    #[must_use]
    pub fn new(sampling: Sampling, output: u32, prompt: &[u32]) -> Self {
        Self { penalties: Penalties::new(&sampling, prompt), sampling, output }
    }

    /// Returns the sampler of an output that already has these tokens.
    #[must_use]
    pub fn after(mut self, output: &[u32]) -> Self {
        output.iter().for_each(|&id| self.penalties.add(id));
        self
    }

    /// Chooses the token at `position`, counted from the start of the prompt. `forbidden` tokens
    /// are excluded. The content of `logits` is undefined afterwards.
    ///
    /// # Errors
    /// [`Error::NotFinite`] if no logit is a finite number.
    pub fn next(&mut self, logits: &mut [f32], position: u64, forbidden: &[u32]) -> Result<u32, Error> {
        self.penalties.apply(logits);
        for &id in forbidden {
            if let Some(logit) = logits.get_mut(id as usize) {
                *logit = f32::NEG_INFINITY;
            }
        }
        let (id, best) = greedy(logits)?;
        let id = if self.sampling.temperature == 0.0 {
            id
        } else {
            let random = uniform(self.sampling.seed, self.output, position);
            draw(&candidates(&self.sampling, logits, best), random).ok_or(Error::NotFinite)?
        };
        self.penalties.add(id);
        Ok(id)
    }
}

/// Returns the tokens that may be drawn after `prompt` and `output` with their probabilities, in
/// the order of their ids.
///
/// # Errors
/// [`Error::NotFinite`] if a logit is not a number.
pub fn distribution(
    sampling: &Sampling,
    prompt: &[u32],
    output: &[u32],
    logits: &[f32],
) -> Result<Vec<(u32, f64)>, Error> {
    let mut penalties = Penalties::new(sampling, prompt);
    output.iter().for_each(|&id| penalties.add(id));
    let mut logits = logits.to_vec();
    penalties.apply(&mut logits);
    let (id, best) = greedy(&logits)?;
    if sampling.temperature == 0.0 {
        return Ok(vec![(id, 1.0)]);
    }
    let kept = candidates(sampling, &mut logits, best);
    let total = total(&kept);
    Ok(kept.iter().map(|candidate| (candidate.id, f64::from(candidate.weight) / total)).collect())
}

/// Returns the most likely token and its logit. Of equal tokens, the first is returned.
fn greedy(logits: &[f32]) -> Result<(u32, f32), Error> {
    let id = vocab::argmax(IsaLevel::detect(), logits);
    match logits.get(id) {
        Some(&best) if best.is_finite() => Ok((id as u32, best)),
        _ => Err(Error::NotFinite),
    }
}

//! Logits to the next token.
//!
//! The steps, their order and their meaning are those of transformers' `generate`: bias, repetition penalty, ends that come too early,
//! temperature, top-k, top-p, min-p, typical-p, draw; presence and frequency penalty, which it does not have, follow the repetition
//! penalty and mean what they do in OpenAI's API. The random number depends on (seed, output, position) alone, and the draw goes
//! through the kept tokens in the order of their ids, so that a seeded request gives the same tokens whatever else runs.

mod filter;
mod logprobs;
mod penalties;
mod random;

pub use logprobs::Logprobs;
pub use random::uniform;

use tandem_kernels::IsaLevel;
use tandem_kernels::vocab;

use crate::error::Error;
use filter::{candidates, draw, total};
use penalties::Penalties;

/// How tokens are chosen, every value settled.
#[derive(Debug, Clone, PartialEq)]
pub struct Sampling {
    /// 0 takes the likeliest token.
    pub temperature: f32,
    /// Keep the K likeliest and what ties with the last of them. 0 keeps all.
    pub top_k: u32,
    /// Keep the smallest set of likeliest tokens whose probabilities reach this. 1 keeps all.
    pub top_p: f32,
    /// Drop tokens less likely than this share of the likeliest. 0 keeps all.
    pub min_p: f32,
    /// Keep the tokens whose information is nearest to the expected, until their probabilities reach this. 1 keeps all.
    pub typical_p: f32,
    /// Divides the logits above zero of tokens seen so far, and multiplies those below. 1 changes nothing.
    pub repetition_penalty: f32,
    /// Taken from the logits of tokens in the output. 0 changes nothing.
    pub presence_penalty: f32,
    /// Taken from the logits of tokens in the output, as often as they are there. 0 changes nothing.
    pub frequency_penalty: f32,
    /// Added to the logits of these tokens.
    pub logit_bias: Vec<(u32, f32)>,
    /// Outputs for the one prompt.
    pub n: u32,
    /// Of the random numbers.
    pub seed: u64,
}

impl Sampling {
    /// Takes the likeliest token, and changes nothing.
    pub const GREEDY: Self = Self {
        temperature: 0.0,
        top_k: 0,
        top_p: 1.0,
        min_p: 0.0,
        typical_p: 1.0,
        repetition_penalty: 1.0,
        presence_penalty: 0.0,
        frequency_penalty: 0.0,
        logit_bias: Vec::new(),
        n: 1,
        seed: 0,
    };
}

/// Chooses the tokens of one output.
#[derive(Debug)]
pub struct Sampler {
    sampling: Sampling,
    output: u32,
    penalties: Penalties,
}

impl Sampler {
    /// For one output that continues `prompt`.
    #[must_use]
    pub fn new(sampling: Sampling, output: u32, prompt: &[u32]) -> Self {
        Self { penalties: Penalties::new(&sampling, prompt), sampling, output }
    }

    /// For an output that has these tokens already.
    #[must_use]
    pub fn after(mut self, output: &[u32]) -> Self {
        output.iter().for_each(|&id| self.penalties.add(id));
        self
    }

    /// Chooses the token at `position`, counted from the start of the prompt, but none of those `forbidden`. `logits` are used up.
    ///
    /// # Errors
    /// [`Error::NotFinite`], when no logit is a finite number.
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

/// The tokens that may be drawn after `prompt` and `output`, and their probabilities, in the order of their ids.
///
/// # Errors
/// [`Error::NotFinite`], when a logit is no number.
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

/// The likeliest token, the first among equals, and its logit.
fn greedy(logits: &[f32]) -> Result<(u32, f32), Error> {
    let id = vocab::argmax(IsaLevel::detect(), logits);
    match logits.get(id) {
        Some(&best) if best.is_finite() => Ok((id as u32, best)),
        _ => Err(Error::NotFinite),
    }
}

//! From logits to the next token.
//!
//! The steps, their order and their meaning are those of transformers' `generate`. They are bias,
//! repetition penalty, tokens that may not end the output yet, temperature, top-k, top-p, min-p,
//! typical-p, draw. Presence and frequency penalty, which transformers does not have, follow the
//! repetition penalty and are defined as in OpenAI's API.
//!
//! A random number depends only on (seed, output, position), and the draw visits the kept tokens in
//! the order of their ids. So a seeded request gets the same tokens in any batch.

mod filter;
mod host;
mod logprobs;
pub mod parameters;
mod penalties;
mod plan;
mod random;
pub mod slot;

pub use host::HostSampler;
pub use logprobs::Logprobs;
pub use parameters::{PARAMETER_NAMES, Sampling, SamplingOptions};
pub use plan::{Chosen, Draw, RowPlan, TokenPlan};
pub use random::uniform;
pub use slot::{History, Slot};

use crate::error::StepError;
use filter::{candidates, greedy, total};
use penalties::{Penalties, add_bias};

/// Returns the tokens that may be drawn after `prompt` and `output` with their probabilities, in
/// the order of their ids.
///
/// # Errors
/// [`StepError::NotFinite`] if a logit is not a number.
pub fn distribution(
    sampling: &Sampling,
    prompt: &[u32],
    output: &[u32],
    logits: &[f32],
) -> Result<Vec<(u32, f64)>, StepError> {
    let mut penalties = Penalties::new(sampling, prompt);
    output.iter().for_each(|&id| penalties.add(id));
    let mut logits = logits.to_vec();
    add_bias(&mut logits, &sampling.logit_bias);
    penalties.apply(&mut logits);
    let (id, best) = greedy(&logits)?;
    if sampling.temperature == 0.0 {
        return Ok(vec![(id, 1.0)]);
    }
    let kept = candidates(sampling, &mut logits, best);
    let total = total(&kept);
    Ok(kept.iter().map(|candidate| (candidate.id, f64::from(candidate.weight) / total)).collect())
}

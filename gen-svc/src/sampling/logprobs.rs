//! How likely tokens are by the model itself, before anything is changed.

use tandem_kernels::IsaLevel;
use tandem_kernels::vocab;

/// Natural logarithms of probabilities.
#[derive(Debug, Clone, PartialEq)]
pub struct Logprobs {
    /// The token's own.
    pub logprob: f32,
    /// The likeliest tokens, the likeliest first, and theirs.
    pub top: Vec<(u32, f32)>,
}

impl Logprobs {
    /// Of the token `id`, and of the `count` likeliest, by `logits`.
    #[must_use]
    pub fn new(logits: &[f32], id: u32, count: usize) -> Self {
        let total = vocab::log_sum_exp(IsaLevel::detect(), logits);
        let logprob = |logit: f32| logit - total;
        let top = likeliest(logits, count).into_iter().map(|id| (id, logprob(logits[id as usize]))).collect();
        Self { logprob: logits.get(id as usize).map_or(f32::NEG_INFINITY, |&logit| logprob(logit)), top }
    }
}

/// The first among equals comes first.
fn likeliest(logits: &[f32], count: usize) -> Vec<u32> {
    let level = IsaLevel::detect();
    let mut found = Vec::new();
    if count > 0 {
        vocab::at_least(level, logits, vocab::kth(level, logits, count), &mut found);
    }
    found.sort_unstable_by(|(a, one), (b, other)| other.total_cmp(one).then(a.cmp(b)));
    found.truncate(count);
    found.into_iter().map(|(id, _)| id).collect()
}

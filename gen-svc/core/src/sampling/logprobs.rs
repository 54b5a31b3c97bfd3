//! Log-probabilities of tokens, computed from the model's unchanged logits.

use tandem_kernels::IsaLevel;
use tandem_kernels::vocab;

/// Log-probabilities (natural logarithm) at one position.
#[derive(Debug, Clone, PartialEq)]
pub struct Logprobs {
    /// The logarithm of the token's probability.
    pub logprob: f32,
    /// The most likely tokens and their log-probabilities, in descending order.
    pub top: Vec<(u32, f32)>,
}

impl Logprobs {
    /// Computes the log-probabilities of the token `id` and of the `count` most likely tokens.
    #[must_use]
    pub fn new(logits: &[f32], id: u32, count: usize) -> Self {
        let total = vocab::log_sum_exp(IsaLevel::detect(), logits);
        let logprob = |logit: f32| logit - total;
        let top = likeliest(logits, count).into_iter().map(|id| (id, logprob(logits[id as usize]))).collect();
        Self { logprob: logits.get(id as usize).map_or(f32::NEG_INFINITY, |&logit| logprob(logit)), top }
    }
}

/// Returns the `count` most likely tokens in descending order. Of equally likely tokens, the
/// smaller id comes first.
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

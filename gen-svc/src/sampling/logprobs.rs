//! How likely tokens are by the model itself, before anything is changed.

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
        let best = logits.iter().copied().fold(f32::NEG_INFINITY, f32::max);
        let total: f64 = logits.iter().map(|logit| f64::from(logit - best).exp()).sum();
        let logprob = |logit: f32| (f64::from(logit - best) - total.ln()) as f32;
        let top = likeliest(logits, count).into_iter().map(|id| (id, logprob(logits[id as usize]))).collect();
        Self { logprob: logits.get(id as usize).map_or(f32::NEG_INFINITY, |&logit| logprob(logit)), top }
    }
}

/// The first among equals comes first.
fn likeliest(logits: &[f32], count: usize) -> Vec<u32> {
    let likelier = |a: &u32, b: &u32| logits[*b as usize].total_cmp(&logits[*a as usize]).then(a.cmp(b));
    let mut ids: Vec<u32> = (0..logits.len() as u32).collect();
    if count > 0 && count < ids.len() {
        ids.select_nth_unstable_by(count - 1, likelier);
    }
    ids.truncate(count);
    ids.sort_unstable_by(likelier);
    ids
}

//! Selects the tokens that may be drawn. These are the logits warpers of transformers, in its
//! order.

use tandem_kernels::IsaLevel;
use tandem_kernels::vocab;

use super::parameters::Sampling;
use crate::error::StepError;

/// A token that may be drawn.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Candidate {
    /// The token id.
    pub(super) id: u32,
    /// The probability relative to the most likely token, above zero.
    pub(super) weight: f32,
}

/// Returns the tokens that may be drawn, in the order of their ids. `best` is the largest logit.
/// The content of `logits` is undefined afterwards.
///
/// Vocabularies are large and few tokens are likely. So kernels compute the passes over all tokens,
/// and only tokens that may be kept are sorted.
pub(super) fn candidates(sampling: &Sampling, logits: &mut [f32], best: f32) -> Vec<Candidate> {
    let level = IsaLevel::detect();
    if sampling.top_k > 0 {
        forget_below(logits, vocab::kth(level, logits, sampling.top_k as usize));
    }
    let factor = sampling.temperature.recip().min(f32::MAX);
    vocab::exp(level, logits, best, factor);
    let mut kept = if sampling.top_p < 1.0 {
        nucleus(logits, f64::from(sampling.top_p) * vocab::total(logits))
    } else {
        at_least(logits, sampling.min_p)
    };
    // The likeliest token has weight 1 and always stays.
    kept.retain(|candidate| candidate.weight >= sampling.min_p);
    if sampling.typical_p < 1.0 {
        keep_typical(&mut kept, sampling.typical_p);
    }
    kept
}

/// Excludes all tokens whose logit is below the threshold.
fn forget_below(logits: &mut [f32], threshold: f32) {
    for logit in logits.iter_mut().filter(|logit| **logit < threshold) {
        *logit = f32::NEG_INFINITY;
    }
}

/// Returns the tokens whose weight is at least `least`, and above zero.
fn at_least(weights: &[f32], least: f32) -> Vec<Candidate> {
    let mut found = Vec::new();
    vocab::at_least(IsaLevel::detect(), weights, least.max(f32::from_bits(1)), &mut found);
    found.into_iter().map(|(id, weight)| Candidate { id, weight }).collect()
}

/// Returns the fewest most likely candidates whose weights sum to `enough`. Sorts only
/// candidates that may be kept.
fn nucleus(weights: &[f32], enough: f64) -> Vec<Candidate> {
    let mut least = 0.05;
    let mut kept = at_least(weights, least);
    while least > 0.0 && total(&kept) < enough {
        least = if least > 1e-9 { least / 20.0 } else { 0.0 };
        kept = at_least(weights, least);
    }
    kept.sort_unstable_by(|a, b| b.weight.total_cmp(&a.weight).then(a.id.cmp(&b.id)));
    let mut reached = 0.0;
    let missing = |candidate: &&Candidate| {
        let short = reached < enough;
        reached += f64::from(candidate.weight);
        short
    };
    let count = kept.iter().take_while(missing).count();
    kept.truncate(count);
    kept.sort_unstable_by_key(|candidate| candidate.id);
    kept
}

/// Keeps the candidates whose information is nearest to the expected information, until their
/// probabilities reach `typical_p`, and ties with the last of them. Source: "Locally Typical
/// Sampling", arXiv 2202.00666.
fn keep_typical(kept: &mut Vec<Candidate>, typical_p: f32) {
    let total = total(kept);
    let information = |candidate: &Candidate| -(f64::from(candidate.weight) / total).ln();
    let share = |candidate: &Candidate| f64::from(candidate.weight) / total;
    let entropy: f64 = kept.iter().map(|candidate| share(candidate) * information(candidate)).sum();
    let distance = |candidate: &Candidate| (information(candidate) - entropy).abs();
    let mut sorted = kept.clone();
    sorted.sort_unstable_by(|a, b| distance(a).total_cmp(&distance(b)));
    let mut reached = 0.0;
    let last = sorted.iter().find(|candidate| {
        reached += share(candidate);
        reached >= f64::from(typical_p)
    });
    if let Some(farthest) = last.map(distance) {
        kept.retain(|candidate| distance(candidate) <= farthest);
    }
}

pub(super) fn total(candidates: &[Candidate]) -> f64 {
    candidates.iter().map(|candidate| f64::from(candidate.weight)).sum()
}

/// Returns the candidate at which the summed probability first exceeds `random`. `None` if there is
/// no candidate.
pub(super) fn draw(candidates: &[Candidate], random: f64) -> Option<u32> {
    let mut left = random * total(candidates);
    let exceeds = |candidate: &&Candidate| {
        left -= f64::from(candidate.weight);
        left < 0.0
    };
    let drawn = candidates.iter().find(exceeds).or(candidates.last());
    drawn.map(|candidate| candidate.id)
}

/// Returns the most likely token and its logit. Of equal tokens, the first is returned.
pub(super) fn greedy(logits: &[f32]) -> Result<(u32, f32), StepError> {
    let id = vocab::argmax(IsaLevel::detect(), logits);
    match logits.get(id) {
        Some(&best) if best.is_finite() => Ok((id as u32, best)),
        _ => Err(StepError::NotFinite),
    }
}

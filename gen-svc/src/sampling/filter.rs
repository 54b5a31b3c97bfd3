//! Which tokens may be drawn: what transformers calls logits warpers, in its order.

use super::Sampling;

/// A token that may be drawn.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Candidate {
    /// The token.
    pub(super) id: u32,
    /// Its probability, relative to the likeliest token's.
    pub(super) weight: f32,
}

/// The tokens that may be drawn, in the order of their ids. `best` is the largest logit.
pub(super) fn candidates(sampling: &Sampling, logits: &[f32], best: f32) -> Vec<Candidate> {
    let weight = |logit: f32| ((logit - best) / sampling.temperature).exp();
    let threshold = kth_largest(logits, sampling.top_k);
    let mut kept: Vec<Candidate> = (0..)
        .zip(logits)
        .filter(|(_, logit)| **logit >= threshold)
        .map(|(id, logit)| Candidate { id, weight: weight(*logit) })
        .collect();
    if sampling.top_p < 1.0 {
        keep_nucleus(&mut kept, sampling.top_p);
    }
    // The likeliest token has weight 1 and always stays.
    kept.retain(|candidate| candidate.weight >= sampling.min_p);
    if sampling.typical_p < 1.0 {
        keep_typical(&mut kept, sampling.typical_p);
    }
    kept
}

/// The K-th largest logit, or what lets all pass.
fn kth_largest(logits: &[f32], k: u32) -> f32 {
    let k = k as usize;
    if k == 0 || k >= logits.len() {
        return f32::NEG_INFINITY;
    }
    let mut logits = logits.to_vec();
    *logits.select_nth_unstable_by(k - 1, |a, b| b.total_cmp(a)).1
}

/// Keeps the likeliest candidates before whose turn less than `top_p` of all probability was reached. Only as many as it takes are
/// sorted.
fn keep_nucleus(kept: &mut Vec<Candidate>, top_p: f32) {
    const FIRST: usize = 256;
    let enough = f64::from(top_p) * total(kept);
    let likelier = |a: &Candidate, b: &Candidate| b.weight.total_cmp(&a.weight).then(a.id.cmp(&b.id));
    let mut sorted = FIRST;
    loop {
        if sorted < kept.len() {
            kept.select_nth_unstable_by(sorted, likelier);
        }
        let head = sorted.min(kept.len());
        kept[..head].sort_unstable_by(likelier);
        let nucleus = nucleus(&kept[..head], enough);
        if nucleus < head || head == kept.len() {
            kept.truncate(nucleus);
            break;
        }
        sorted *= 8;
    }
    kept.sort_unstable_by_key(|candidate| candidate.id);
}

/// How many of the sorted candidates it takes to reach `enough`.
fn nucleus(sorted: &[Candidate], enough: f64) -> usize {
    let mut reached = 0.0;
    let missing = |candidate: &&Candidate| {
        let short = reached < enough;
        reached += f64::from(candidate.weight);
        short
    };
    sorted.iter().take_while(missing).count()
}

/// Keeps the candidates whose information is nearest to the expected, until their probabilities reach `typical_p`, and what is as near
/// as the last of them. Source: "Locally Typical Sampling", arXiv 2202.00666.
fn keep_typical(kept: &mut Vec<Candidate>, typical_p: f32) {
    let total = total(kept);
    let information = |candidate: &Candidate| -(f64::from(candidate.weight) / total).ln();
    let share = |candidate: &Candidate| f64::from(candidate.weight) / total;
    kept.retain(|candidate| candidate.weight > 0.0);
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

/// The candidate at which the summed probability first exceeds `random`.
pub(super) fn draw(candidates: &[Candidate], random: f64) -> u32 {
    let mut left = random * total(candidates);
    let mut last = 0;
    for candidate in candidates.iter().filter(|candidate| candidate.weight > 0.0) {
        last = candidate.id;
        left -= f64::from(candidate.weight);
        if left < 0.0 {
            break;
        }
    }
    last
}

//! Logits to the next token.
//!
//! The steps, their order and their meaning are those of transformers' `generate`: repetition penalty, temperature, top-k, top-p,
//! min-p, draw. The random number depends on (seed, output, position) alone, and the draw goes through the kept tokens in the order
//! of their ids, so that a seeded request gives the same tokens whatever else runs.

use std::collections::BTreeSet;

use crate::error::Error;

/// How tokens are chosen, every value settled.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Sampling {
    /// 0 takes the likeliest token.
    pub temperature: f32,
    /// Keep the K likeliest and what ties with the last of them. 0 keeps all.
    pub top_k: u32,
    /// Keep the smallest set of likeliest tokens whose probabilities reach this. 1 keeps all.
    pub top_p: f32,
    /// Drop tokens less likely than this share of the likeliest. 0 keeps all.
    pub min_p: f32,
    /// Divides the logits above zero of tokens seen so far, and multiplies those below. 1 changes nothing.
    pub repetition_penalty: f32,
    /// Of the random numbers.
    pub seed: u64,
}

/// A token that may be drawn.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Candidate {
    /// The token.
    pub id: u32,
    /// Its probability, relative to the likeliest token's.
    pub weight: f32,
}

/// Chooses the tokens of one output.
#[derive(Debug)]
pub struct Sampler {
    sampling: Sampling,
    output_index: u32,
    seen: BTreeSet<u32>,
}

impl Sampler {
    /// For one output that continues `prompt`.
    #[must_use]
    pub fn new(sampling: Sampling, output_index: u32, prompt: &[u32]) -> Self {
        let mut sampler = Self { sampling, output_index, seen: BTreeSet::new() };
        if sampler.penalizes() {
            sampler.seen.extend(prompt);
        }
        sampler
    }

    /// The seed that reproduces this output.
    #[must_use]
    pub fn seed(&self) -> u64 {
        self.sampling.seed
    }

    /// Chooses the token at `position`, counted from the start of the prompt. `logits` are used up.
    ///
    /// # Errors
    /// [`Error::NotFinite`], when the model's output is no number.
    pub fn next(&mut self, logits: &mut [f32], position: u64) -> Result<u32, Error> {
        self.penalize(logits);
        let id = if self.sampling.temperature == 0.0 {
            greedy(logits)?.0
        } else {
            let random = uniform(self.sampling.seed, self.output_index, position);
            draw(&self.candidates(logits)?, random)
        };
        if self.penalizes() {
            self.seen.insert(id);
        }
        Ok(id)
    }

    /// The tokens that may be drawn, in the order of their ids.
    fn candidates(&self, logits: &[f32]) -> Result<Vec<Candidate>, Error> {
        let (_, best) = greedy(logits)?;
        let weight = |logit: f32| ((logit - best) / self.sampling.temperature).exp();
        let threshold = kth_largest(logits, self.sampling.top_k);
        let mut kept: Vec<Candidate> = (0..)
            .zip(logits)
            .filter(|(_, logit)| **logit >= threshold)
            .map(|(id, logit)| Candidate { id, weight: weight(*logit) })
            .collect();
        if self.sampling.top_p < 1.0 {
            keep_nucleus(&mut kept, self.sampling.top_p);
        }
        // The likeliest token has weight 1 and always stays.
        kept.retain(|candidate| candidate.weight >= self.sampling.min_p);
        Ok(kept)
    }

    fn penalizes(&self) -> bool {
        self.sampling.repetition_penalty != 1.0
    }

    fn penalize(&self, logits: &mut [f32]) {
        let penalty = self.sampling.repetition_penalty;
        for &id in &self.seen {
            let logit = &mut logits[id as usize];
            let penalized = if *logit < 0.0 { *logit * penalty } else { *logit / penalty };
            *logit = penalized.clamp(f32::MIN, f32::MAX); // a tiny penalty must not make infinities
        }
    }
}

/// The tokens that may be drawn after `prompt` and their probabilities, in the order of their ids.
///
/// # Errors
/// [`Error::NotFinite`], when a logit is no number.
pub fn distribution(sampling: Sampling, prompt: &[u32], logits: &[f32]) -> Result<Vec<(u32, f64)>, Error> {
    let sampler = Sampler::new(sampling, 0, prompt);
    let mut logits = logits.to_vec();
    sampler.penalize(&mut logits);
    if sampling.temperature == 0.0 {
        return Ok(vec![(greedy(&logits)?.0, 1.0)]);
    }
    let kept = sampler.candidates(&logits)?;
    let total = total(&kept);
    Ok(kept.iter().map(|candidate| (candidate.id, f64::from(candidate.weight) / total)).collect())
}

/// A number in 0 .. 1, of 53 bits, from a counter: each word is added to the state, which SplitMix64's finalizer then scrambles.
#[must_use]
pub fn uniform(seed: u64, output_index: u32, position: u64) -> f64 {
    let bits = [seed, u64::from(output_index), position].into_iter().fold(0, |state, word| scramble(state ^ word));
    (bits >> 11) as f64 * (1.0 / (1_u64 << 53) as f64)
}

/// One step of SplitMix64.
fn scramble(state: u64) -> u64 {
    let z = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

/// The likeliest token, the first among equals, and its logit.
fn greedy(logits: &[f32]) -> Result<(u32, f32), Error> {
    let first = (0, f32::NEG_INFINITY);
    let best = (0..).zip(logits).fold(first, |best, (id, &logit)| if logit > best.1 { (id, logit) } else { best });
    if best.1.is_finite() { Ok(best) } else { Err(Error::NotFinite) }
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

fn total(candidates: &[Candidate]) -> f64 {
    candidates.iter().map(|candidate| f64::from(candidate.weight)).sum()
}

/// The candidate at which the summed probability first exceeds `random`.
fn draw(candidates: &[Candidate], random: f64) -> u32 {
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

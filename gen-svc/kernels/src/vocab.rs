//! Passes over a row of logits, one number per vocabulary entry. Every ISA level returns the same
//! bits.

use crate::act::{self, MapInPlace, Scale, SoftCap};
use crate::isa::{Isa, IsaLevel, Kernel, LANES};

/// Returns the largest number and ignores NaN. Negative infinity for an empty row.
#[must_use]
pub fn max(level: IsaLevel, row: &[f32]) -> f32 {
    level.run(Max(row))
}

/// Returns the first index of the largest number. Zero if there is none.
#[must_use]
pub fn argmax(level: IsaLevel, row: &[f32]) -> usize {
    let max = max(level, row);
    row.iter().position(|value| *value == max).unwrap_or(0)
}

/// Returns ln(sum(exp(x))).
#[must_use]
pub fn log_sum_exp(level: IsaLevel, row: &[f32]) -> f32 {
    let max = max(level, row);
    if max.is_infinite() { max } else { max + level.run(SumOfExps { row, max }).ln() }
}

/// Replaces each number by exp((x - max) * factor).
pub fn exp(level: IsaLevel, row: &mut [f32], max: f32, factor: f32) {
    level.run(Weights { row, max, factor });
}

/// Returns the sum in 64-bit floats, of eight chains. In 32-bit floats, the sum of a whole vocabulary would
/// differ by the weight of several tokens if many are about equally likely.
#[must_use]
pub fn total(row: &[f32]) -> f64 {
    let mut sums = [0.0; LANES];
    for lanes in row.chunks(LANES) {
        sums.iter_mut().zip(lanes).for_each(|(sum, x)| *sum += f64::from(*x));
    }
    sums.iter().sum()
}

/// Appends index and value of every number that is at least `threshold`, in order.
pub fn at_least(level: IsaLevel, row: &[f32], threshold: f32, out: &mut Vec<(u32, f32)>) {
    for (start, part) in (0..).step_by(CHUNK_NUMBERS).zip(row.chunks(CHUNK_NUMBERS)) {
        if max(level, part) >= threshold {
            let values = (start..).zip(part.iter().copied());
            out.extend(values.filter(|(_, value)| *value >= threshold));
        }
    }
}

/// Numbers that are compared with the threshold together, since few of them pass.
const CHUNK_NUMBERS: usize = 64;

/// Returns the K-th largest number and ignores NaN. Negative infinity if the row has fewer numbers.
#[must_use]
pub fn kth(level: IsaLevel, row: &[f32], k: usize) -> f32 {
    let greatest: Vec<f32> = row.chunks(CHUNK_NUMBERS).map(|part| max(level, part)).collect();
    // A lower bound: each of the K best chunks contains a number that is at least this large.
    let least = kth_of(greatest, k).unwrap_or(f32::NEG_INFINITY);
    let mut found = Vec::new();
    at_least(level, row, least, &mut found);
    kth_of(found.into_iter().map(|(_, value)| value).collect(), k).unwrap_or(f32::NEG_INFINITY)
}

fn kth_of(mut values: Vec<f32>, k: usize) -> Option<f32> {
    let at = k.checked_sub(1).filter(|at| *at < values.len())?;
    Some(*values.select_nth_unstable_by(at, |a, b| b.total_cmp(a)).1)
}

/// Replaces every number that `allowed` excludes by negative infinity.
///
/// Bit i % 32 of word i / 32 represents number i. Numbers beyond the last word are excluded.
pub fn mask(row: &mut [f32], allowed: &[u32]) {
    let words = allowed.iter().chain(std::iter::repeat(&0));
    for (part, word) in row.chunks_mut(32).zip(words) {
        match word {
            &u32::MAX => {}
            0 => part.fill(f32::NEG_INFINITY),
            word => mask_part(part, *word),
        }
    }
}

fn mask_part(part: &mut [f32], word: u32) {
    for (i, value) in part.iter_mut().enumerate() {
        if word >> i & 1 == 0 {
            *value = f32::NEG_INFINITY;
        }
    }
}

/// Multiplies every number by `factor`.
pub fn scale(level: IsaLevel, row: &mut [f32], factor: f32) {
    level.run(MapInPlace(row, Scale(factor)));
}

/// Replaces each number by `limit` * tanh(x / `limit`).
pub fn soft_cap(level: IsaLevel, row: &mut [f32], limit: f32) {
    level.run(MapInPlace(row, SoftCap(limit)));
}

struct Max<'a>(&'a [f32]);

impl Kernel for Max<'_> {
    type Output = f32;

    #[inline(always)]
    fn run<I: Isa>(self, isa: I) -> f32 {
        let mut greatest = [isa.splat(f32::NEG_INFINITY); 4];
        let (whole, rest) = self.0.as_chunks::<{ 4 * LANES }>();
        for lanes in whole {
            for (greatest, lanes) in greatest.iter_mut().zip(lanes.as_chunks().0) {
                *greatest = isa.max(isa.load(lanes), *greatest);
            }
        }
        for lanes in rest.chunks(LANES) {
            greatest[0] = isa.max(isa.load_part(lanes, f32::NEG_INFINITY), greatest[0]);
        }
        let [a, b, c, d] = greatest;
        isa.greatest(isa.max(isa.max(a, b), isa.max(c, d)))
    }
}

/// The sum of exponentials, in four chains of eight lanes.
struct SumOfExps<'a> {
    row: &'a [f32],
    max: f32,
}

impl Kernel for SumOfExps<'_> {
    type Output = f32;

    #[inline(always)]
    fn run<I: Isa>(self, isa: I) -> f32 {
        let max = isa.splat(self.max);
        let mut sums = [isa.splat(0.0); 4];
        let (whole, rest) = self.row.as_chunks::<{ 4 * LANES }>();
        for lanes in whole {
            for (sum, lanes) in sums.iter_mut().zip(lanes.as_chunks().0) {
                *sum = isa.add(*sum, act::exp(isa, isa.sub(isa.load(lanes), max)));
            }
        }
        for lanes in rest.chunks(LANES) {
            sums[0] = isa.add(sums[0], act::exp(isa, isa.sub(isa.load_part(lanes, f32::NEG_INFINITY), max)));
        }
        let [a, b, c, d] = sums;
        isa.sum(isa.add(isa.add(a, b), isa.add(c, d)))
    }
}

struct Weights<'a> {
    row: &'a mut [f32],
    max: f32,
    factor: f32,
}

impl Kernel for Weights<'_> {
    type Output = ();

    #[inline(always)]
    fn run<I: Isa>(self, isa: I) {
        let (max, factor) = (isa.splat(self.max), isa.splat(self.factor));
        for x in self.row.chunks_mut(LANES) {
            let lanes = act::exp(isa, isa.mul(isa.sub(isa.load_part(x, f32::NEG_INFINITY), max), factor));
            isa.store_part(lanes, x);
        }
    }
}

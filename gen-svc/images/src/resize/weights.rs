//! Integer weights of the source's pixels for each pixel of the result.

use std::ops::Range;

use super::filter::Kernel;

/// The largest number of fraction bits.
const MAX_PRECISION: u32 = 22;

/// The weights along one axis.
pub(super) struct Weights {
    /// The first source pixel of each result pixel, and where its weights are in `values`.
    spans: Vec<Span>,
    values: Vec<i16>,
    /// The number of fraction bits of the weights.
    pub(super) precision: u32,
}

struct Span {
    first: usize,
    start: usize,
    end: usize,
}

impl Weights {
    /// Returns the weights to resize a side from `from` to `to` pixels.
    pub(super) fn new(from: usize, to: usize, kernel: Kernel) -> Self {
        let (mut spans, mut exact) = (Vec::with_capacity(to), Vec::new());
        for index in 0..to {
            let start = exact.len();
            let first = push_exact(from, to, index, kernel, &mut exact);
            spans.push(Span { first, start, end: exact.len() });
        }
        let largest = exact.iter().copied().fold(0.0, f64::max);
        let precision = precision(largest);
        let values = exact.iter().map(|weight| (weight * f64::from(1 << precision)).round_half_out()).collect();
        Self { spans, values, precision }
    }

    /// Returns the first source pixel and the weights of each result pixel.
    pub(super) fn iter(&self) -> impl Iterator<Item = (usize, &[i16])> {
        self.spans.iter().map(|span| (span.first, &self.values[span.start..span.end]))
    }

    /// Returns the source pixels of a result pixel, and their weights.
    pub(super) fn at(&self, index: usize) -> (Range<usize>, &[i16]) {
        let span = &self.spans[index];
        (span.first..span.first + span.end - span.start, &self.values[span.start..span.end])
    }

    /// Returns the largest number of source pixels of a result pixel.
    pub(super) fn most(&self) -> usize {
        self.spans.iter().map(|span| span.end - span.start).max().unwrap_or(0)
    }

    /// Returns how many pixels the result has.
    pub(super) fn len(&self) -> usize {
        self.spans.len()
    }
}

/// Appends the weights of one result pixel, whose sum is 1. Returns its first source pixel.
fn push_exact(from: usize, to: usize, index: usize, kernel: Kernel, out: &mut Vec<f64>) -> usize {
    let scale = from as f64 / to as f64;
    let stretch = scale.max(1.0);
    let reach = kernel.reach() * stretch;
    let center = scale * (index as f64 + 0.5);
    let first = (center - reach + 0.5).max(0.0) as usize;
    let end = ((center + reach + 0.5) as usize).min(from);
    let start = out.len();
    out.extend((first..end).map(|pixel| kernel.at((pixel as f64 - center + 0.5) / stretch)));
    let sum: f64 = out[start..].iter().sum();
    out[start..].iter_mut().for_each(|weight| *weight /= sum);
    first
}

/// Returns the largest number of fraction bits with which `largest` fits into 15 bits.
fn precision(largest: f64) -> u32 {
    let fits = |bits: &u32| 0.5 + largest * f64::from(1 << bits) < f64::from(1 << 15);
    (1..=MAX_PRECISION).take_while(fits).last().unwrap_or(0)
}

trait RoundHalfOut {
    /// Rounds to the nearest integer, and a half away from zero.
    fn round_half_out(self) -> i16;
}

impl RoundHalfOut for f64 {
    fn round_half_out(self) -> i16 {
        (self + 0.5_f64.copysign(self)) as i16
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn halving_weighs_pairs_alike() {
        let weights = Weights::new(4, 2, Kernel::Bilinear);
        let rows: Vec<_> = weights.iter().map(|(first, row)| (first, row.len())).collect();
        assert_eq!((rows, weights.len()), (vec![(0, 3), (1, 3)], 2));
    }

    #[test]
    fn one_source_pixel_has_the_whole_weight() {
        let weights = Weights::new(1, 3, Kernel::Lanczos);
        assert!(weights.iter().all(|(first, row)| first == 0 && row == [1 << weights.precision]));
    }
}

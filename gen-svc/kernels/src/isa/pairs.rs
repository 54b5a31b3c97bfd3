//! Products of pairs of bf16 numbers: their definition, the operations of a level, and their
//! imitation by operations on f32.
//!
//! All levels have the results of the instruction `vdpbf16ps`. To a sum, the product of the second
//! numbers of two pairs is added first, then that of the first numbers. Each product and its
//! addition are one fused multiply-add, rounded to nearest, ties to even. A denormal input is a zero
//! of its sign. So is a denormal result: one that, rounded with an unbounded exponent, is below the
//! smallest normal number.
//!
//! Source: Intel 64 and IA-32 Architectures Software Developer's Manual, volume 2, VDPBF16PS. It
//! leaves open whether a result is denormal before or after rounding: after, on AMD's Zen 4.

use super::operations::{Isa, Kernel, Wide};
use super::sizes::{LANES, Pair, WIDE};
use crate::half::f32_to_bf16;

/// Returns the least biased exponent of the numbers that are not zero: 0 if one is denormal, and
/// more than all exponents if there is none.
#[inline(always)]
pub(crate) fn least_exponent(numbers: impl Iterator<Item = u16>) -> u16 {
    // Wrapping makes zero the largest.
    let least = numbers.map(|number| (number & 0x7fff).wrapping_sub(1)).fold(u16::MAX, u16::min);
    ((u32::from(least) + 1) >> 7) as u16
}

/// Returns true if no sum of products can be denormal and no factor is: the numbers are tame. The
/// arguments are the least exponents of both factors.
///
/// A number of biased exponent e is a multiple of 2^(e - 134). If all products are multiples of the
/// smallest normal number, 2^-126, then so are all sums: rounding keeps multiples of powers of two.
#[inline(always)]
pub(crate) fn is_tame(weights: u16, x: u16) -> bool {
    weights > 0 && x > 0 && weights + x >= 2 * 134 - 126
}

/// The operations of a level for products of pairs. A value of the type proves that the processor
/// has the instructions.
pub(crate) trait Pairs: Copy {
    type Isa: Isa;
    /// Two columns of sixteen rows of weights.
    type Weights: Copy;
    /// A pair that multiplies all rows.
    type X: Copy;
    /// True if `add` is as fast as `add_tame`.
    const IS_NATIVE: bool;

    fn isa(self) -> Self::Isa;
    /// Loads two columns of the rows of two panels.
    fn weights(self, panels: [&[Pair; LANES]; 2]) -> Self::Weights;
    fn splat(self, x: Pair) -> Self::X;
    /// Adds the products of the weights of each row and one pair.
    fn add(self, sums: Sums<Self>, weights: Self::Weights, x: Self::X) -> Sums<Self>;
    /// Does the same as `add` if the numbers are [tame](is_tame).
    fn add_tame(self, sums: Sums<Self>, weights: Self::Weights, x: Self::X) -> Sums<Self>;
    /// Rounds 32 numbers to nearest, ties to even, and stores them: each pair is two consecutive
    /// numbers. No number is denormal. Returns the pairs.
    fn round(self, numbers: [Sums<Self>; 2], to: &mut [Pair; WIDE]) -> Self::Weights;
}

/// Sums of sixteen rows.
pub(crate) type Sums<P> = <<P as Pairs>::Isa as Wide>::W;

/// A computation with products of pairs. The same rules hold as for [`Kernel`].
pub(crate) trait PairKernel {
    fn run<P: Pairs>(self, pairs: P);
}

/// Products by fused multiply-adds.
#[derive(Debug, Clone, Copy)]
pub(super) struct Imitation<I>(pub(super) I);

impl<I: Isa> Pairs for Imitation<I> {
    type Isa = I;
    /// The first column, then the second.
    type Weights = [I::W; 2];
    type X = [I::W; 2];
    const IS_NATIVE: bool = false;

    #[inline(always)]
    fn isa(self) -> I {
        self.0
    }

    #[inline(always)]
    fn weights(self, panels: [&[Pair; LANES]; 2]) -> [I::W; 2] {
        let [first, second] = [self.0.load_pairs(panels[0]), self.0.load_pairs(panels[1])];
        [self.0.join(first[0], second[0]), self.0.join(first[1], second[1])]
    }

    #[inline(always)]
    fn splat(self, x: Pair) -> [I::W; 2] {
        self.0.wide_splat_pair(x)
    }

    #[inline(always)]
    fn add(self, sums: I::W, weights: [I::W; 2], x: [I::W; 2]) -> I::W {
        self.add_product(self.add_product(sums, weights[1], x[1]), weights[0], x[0])
    }

    #[inline(always)]
    fn add_tame(self, sums: I::W, weights: [I::W; 2], x: [I::W; 2]) -> I::W {
        self.0.fma(weights[0], x[0], self.0.fma(weights[1], x[1], sums))
    }

    #[inline(always)]
    fn round(self, numbers: [I::W; 2], to: &mut [Pair; WIDE]) -> [I::W; 2] {
        let mut unrounded = [[0.0; WIDE]; 2];
        for half in 0..2 {
            self.0.wide_store(numbers[half], &mut unrounded[half]);
        }
        for (to, number) in to.as_flattened_mut().iter_mut().zip(unrounded.as_flattened()) {
            *to = f32_to_bf16(*number);
        }
        let halves = to.as_chunks().0;
        self.weights([&halves[0], &halves[1]])
    }
}

impl<I: Isa> Imitation<I> {
    /// Adds a product to sums that are not denormal.
    #[inline(always)]
    fn add_product(self, sums: I::W, weights: I::W, x: I::W) -> I::W {
        let isa = self.0;
        let least: I::W = isa.splat(f32::MIN_POSITIVE);
        let (weights, x) = (self.flushed(weights, weights, least), self.flushed(x, x, least));
        let result = isa.fma(weights, x, sums);
        // A result near the smallest normal number is rounded as a denormal number. Twice the result
        // is not. Where doubling overflows, the result is no denormal number.
        let twice = isa.fma(isa.add(weights, weights), x, isa.add(sums, sums));
        self.flushed(result, twice, isa.add(least, least))
    }

    /// Replaces values by zeros of their sign where the magnitude of `size` is less than `least`.
    #[inline(always)]
    fn flushed(self, values: I::W, size: I::W, least: I::W) -> I::W {
        let isa = self.0;
        isa.select_less(isa.abs(size), least, isa.mul(values, isa.splat(0.0)), values)
    }
}

/// Runs a kernel with [`Imitation`].
pub(super) struct Imitated<K>(pub(super) K);

impl<K: PairKernel> Kernel for Imitated<K> {
    type Output = ();

    #[inline(always)]
    fn run<I: Isa>(self, isa: I) {
        self.0.run(Imitation(isa));
    }
}

//! How each format multiplies keys by queries, and values by softmax weights.
//!
//! In f32 and f16, one number of keys or values is multiplied by one number in f32. In bf16, a pair
//! of numbers is multiplied by a pair, as [`Pairs`] defines it. All of its numbers are rounded, and
//! zero if they are too small, so that they are [tame](crate::isa::is_tame): keys, values and queries
//! are at least 2^-55 in magnitude, softmax weights at least 2^-57.

use std::marker::PhantomData;

use super::call::{FACTORS, SPAN_BLOCKS};
use crate::act::{exp_above, exp_up_to_one};
use crate::buffer::Plain;
use crate::element::{Bf16, Element};
use crate::half::LEAST_TAME;
use crate::isa::{Arithmetic, Isa, LANES, Pair, Pairs, WIDE, Wide};
use crate::kv::POSITIONS;

/// A format of keys and values.
pub(super) trait Format: Sized {
    /// A number of keys or values, or a pair of them.
    type Lane: Plain;
    /// What multiplies it: a part of a query or of a row's softmax weights.
    type Factor: Copy + Default + Send + Sync;
    /// Numbers of a lane, and of a factor.
    const DEPTH: usize;

    /// Replaces all numbers of a lane but one by zero.
    fn mask(lane: Self::Lane, kept: usize) -> Self::Lane;
}

/// The operations of a format at an ISA level.
pub(super) trait Multiply: Copy {
    type Format: Format;
    type Isa: Isa;
    /// A vector of sixteen lanes.
    type Lanes: Copy;

    fn isa(self) -> Self::Isa;
    /// Converts a part of a query to factors.
    fn convert(self, query: &[f32]) -> [Factor<Self>; FACTORS];
    fn load(self, from: &[Lane<Self>; WIDE]) -> Self::Lanes;
    /// Loads eight lanes. The eight others are unspecified.
    fn load_eight(self, from: &[Lane<Self>; LANES]) -> Self::Lanes;
    /// Adds the products of the lanes and one factor.
    fn add(self, sums: Numbers<Self>, lanes: Self::Lanes, factor: Factor<Self>) -> Numbers<Self>;
    /// Multiplies sums of products by a number.
    fn scale(self, sums: Numbers<Self>, number: f32) -> Numbers<Self>;
    /// Computes the softmax weights of the scores of a row. Returns sums of the weights.
    fn weigh(
        self,
        scores: &[[f32; POSITIONS]; SPAN_BLOCKS],
        greatest: f32,
        weights: &mut [Factor<Self>; FACTORS],
    ) -> Numbers<Self>;
}

pub(super) type Lane<M> = <<M as Multiply>::Format as Format>::Lane;
pub(super) type Factor<M> = <<M as Multiply>::Format as Format>::Factor;
pub(super) type Numbers<M> = <<M as Multiply>::Isa as Wide>::W;

/// A format whose numbers are converted to f32.
pub(super) struct Single<E>(PhantomData<E>);

impl<E: Element> Format for Single<E> {
    type Lane = E::Stored;
    type Factor = f32;
    const DEPTH: usize = 1;

    #[inline(always)]
    fn mask(lane: E::Stored, _kept: usize) -> E::Stored {
        lane
    }
}

impl Format for Bf16 {
    type Lane = Pair;
    type Factor = Pair;
    const DEPTH: usize = 2;

    #[inline(always)]
    fn mask(lane: Pair, kept: usize) -> Pair {
        if kept == 0 { [lane[0], 0] } else { [0, lane[1]] }
    }
}

/// Products of single numbers.
pub(super) struct Singles<E, I> {
    isa: I,
    element: PhantomData<E>,
}

impl<E, I> Singles<E, I> {
    pub(super) fn new(isa: I) -> Self {
        Self { isa, element: PhantomData }
    }
}

impl<E, I: Copy> Clone for Singles<E, I> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<E, I: Copy> Copy for Singles<E, I> {}

impl<E: Element, I: Isa> Multiply for Singles<E, I> {
    type Format = Single<E>;
    type Isa = I;
    type Lanes = I::W;

    #[inline(always)]
    fn isa(self) -> I {
        self.isa
    }

    #[inline(always)]
    fn convert(self, query: &[f32]) -> [f32; FACTORS] {
        let mut factors = [0.0; FACTORS];
        match query.first_chunk() {
            Some(whole) => factors = *whole,
            None => factors[..query.len()].copy_from_slice(query),
        }
        factors
    }

    #[inline(always)]
    fn load(self, from: &[E::Stored; WIDE]) -> I::W {
        E::wide_load(self.isa, from)
    }

    #[inline(always)]
    fn load_eight(self, from: &[E::Stored; LANES]) -> I::W {
        let eight = E::load(self.isa, from);
        self.isa.join(eight, eight)
    }

    #[inline(always)]
    fn add(self, sums: I::W, lanes: I::W, factor: f32) -> I::W {
        self.isa.fma(lanes, self.isa.splat(factor), sums)
    }

    #[inline(always)]
    fn scale(self, sums: I::W, number: f32) -> I::W {
        self.isa.mul(sums, self.isa.splat(number))
    }

    #[inline(always)]
    fn weigh(self, scores: &[[f32; POSITIONS]; SPAN_BLOCKS], greatest: f32, weights: &mut [f32; FACTORS]) -> I::W {
        let isa = self.isa;
        let (greatest, mut sums): (I::W, I::W) = (isa.splat(greatest), isa.splat(0.0));
        for (scores, to) in scores.iter().zip(weights.as_chunks_mut().0) {
            let weights = exp_up_to_one(isa, isa.sub(isa.wide_load(scores), greatest));
            isa.wide_store(weights, to);
            sums = isa.add(sums, weights);
        }
        sums
    }
}

/// Products of pairs.
#[derive(Clone, Copy)]
pub(super) struct PairsOfBf16<P>(pub(super) P);

/// Softmax weights whose logarithms are below this are zero. It is the logarithm of 2^-56.3.
const LEAST_LOGARITHM: f32 = -39.0;
/// Scaled sums that are smaller in magnitude are zero: 2^-103. The others are multiples of 2^-126, as
/// are all tame products, so that no sum is ever denormal.
const LEAST_SUM: f32 = f32::from_bits((127 - 103) << 23);
/// Two ones.
const ONES: Pair = [0x3f80; 2];

impl<P: Pairs> Multiply for PairsOfBf16<P> {
    type Format = Bf16;
    type Isa = P::Isa;
    type Lanes = P::Weights;

    #[inline(always)]
    fn isa(self) -> P::Isa {
        self.0.isa()
    }

    #[inline(always)]
    fn convert(self, query: &[f32]) -> [Pair; FACTORS] {
        let (isa, mut factors) = (self.isa(), [Pair::default(); FACTORS]);
        for (to, from) in factors.as_chunks_mut().0.iter_mut().zip(query.chunks(2 * WIDE)) {
            let mut padded = [0.0; 2 * WIDE];
            let numbers = from.first_chunk().unwrap_or_else(|| {
                padded[..from.len()].copy_from_slice(from);
                &padded
            });
            let mut tame = [isa.splat(0.0); 2];
            for half in 0..2 {
                let lanes = isa.wide_load(&numbers.as_chunks().0[half]);
                tame[half] = isa.select_less(isa.abs(lanes), isa.splat(LEAST_TAME), isa.splat(0.0), lanes);
            }
            self.0.round(tame, to);
        }
        factors
    }

    #[inline(always)]
    fn load(self, from: &[Pair; WIDE]) -> P::Weights {
        let halves = from.as_chunks().0;
        self.0.weights([&halves[0], &halves[1]])
    }

    #[inline(always)]
    fn load_eight(self, from: &[Pair; LANES]) -> P::Weights {
        self.0.weights([from, from])
    }

    #[inline(always)]
    fn add(self, sums: Numbers<Self>, lanes: P::Weights, factor: Pair) -> Numbers<Self> {
        self.0.add_tame(sums, lanes, self.0.splat(factor))
    }

    #[inline(always)]
    fn scale(self, sums: Numbers<Self>, number: f32) -> Numbers<Self> {
        let isa = self.isa();
        let scaled = isa.mul(sums, isa.splat(number));
        isa.select_less(isa.abs(scaled), isa.splat(LEAST_SUM), isa.splat(0.0), scaled)
    }

    /// Returns sums of the rounded weights, which multiply the values: a constant value is its own
    /// weighted mean.
    #[inline(always)]
    fn weigh(
        self,
        scores: &[[f32; POSITIONS]; SPAN_BLOCKS],
        greatest: f32,
        weights: &mut [Pair; FACTORS],
    ) -> Numbers<Self> {
        let isa = self.isa();
        let (greatest, mut sums): (Numbers<Self>, Numbers<Self>) = (isa.splat(greatest), isa.splat(0.0));
        for (scores, to) in scores.as_chunks::<2>().0.iter().zip(weights.as_chunks_mut().0) {
            let mut unrounded = [sums; 2];
            for half in 0..2 {
                unrounded[half] = exp_above(isa, isa.sub(isa.wide_load(&scores[half]), greatest), LEAST_LOGARITHM);
            }
            sums = self.0.add_tame(sums, self.0.round(unrounded, to), self.0.splat(ONES));
        }
        sums
    }
}

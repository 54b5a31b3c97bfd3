//! Storage types of numbers. Kernels load eight or sixteen numbers at a time as f32.

use crate::buffer::Plain;
use crate::half::f32_to_tame_bf16;
use crate::isa::{Isa, LANES, WIDE};

/// A storage type of weights, keys or values.
pub(crate) trait Element {
    type Stored: Plain;

    fn load<I: Isa>(isa: I, from: &[Self::Stored; LANES]) -> I::F;

    #[inline(always)]
    fn wide_load<I: Isa>(isa: I, from: &[Self::Stored; WIDE]) -> I::W {
        let halves = from.as_chunks().0;
        isa.join(Self::load(isa, &halves[0]), Self::load(isa, &halves[1]))
    }
}

/// A storage type that kernels can write to the KV cache.
pub(crate) trait WritableElement {
    type Stored: Plain;
    const ZERO: Self::Stored;
    /// Numbers that are multiplied together, and are therefore next to each other.
    const PER_LANE: usize;

    fn store<I: Isa>(isa: I, lanes: I::F, to: &mut [Self::Stored; LANES]);
}

#[derive(Debug)]
pub(crate) struct F32;
#[derive(Debug)]
pub(crate) struct F16;
/// Numbers that [`f32_to_tame_bf16`] rounds.
#[derive(Debug)]
pub(crate) struct Bf16;

impl Element for F32 {
    type Stored = f32;

    #[inline(always)]
    fn load<I: Isa>(isa: I, from: &[f32; LANES]) -> I::F {
        isa.load(from)
    }

    #[inline(always)]
    fn wide_load<I: Isa>(isa: I, from: &[f32; WIDE]) -> I::W {
        isa.wide_load(from)
    }
}

impl Element for F16 {
    type Stored = u16;

    #[inline(always)]
    fn load<I: Isa>(isa: I, from: &[u16; LANES]) -> I::F {
        isa.load_f16(from)
    }

    #[inline(always)]
    fn wide_load<I: Isa>(isa: I, from: &[u16; WIDE]) -> I::W {
        isa.wide_load_f16(from)
    }
}

impl WritableElement for F32 {
    type Stored = f32;
    const ZERO: f32 = 0.0;
    const PER_LANE: usize = 1;

    #[inline(always)]
    fn store<I: Isa>(isa: I, lanes: I::F, to: &mut [f32; LANES]) {
        isa.store(lanes, to);
    }
}

impl WritableElement for F16 {
    type Stored = u16;
    const ZERO: u16 = 0;
    const PER_LANE: usize = 1;

    #[inline(always)]
    fn store<I: Isa>(isa: I, lanes: I::F, to: &mut [u16; LANES]) {
        isa.store_f16(lanes, to);
    }
}

impl WritableElement for Bf16 {
    type Stored = u16;
    const ZERO: u16 = 0;
    const PER_LANE: usize = 2;

    #[inline(always)]
    fn store<I: Isa>(isa: I, lanes: I::F, to: &mut [u16; LANES]) {
        let mut numbers = [0.0; LANES];
        isa.store(lanes, &mut numbers);
        for (to, number) in to.iter_mut().zip(numbers) {
            *to = f32_to_tame_bf16(number);
        }
    }
}

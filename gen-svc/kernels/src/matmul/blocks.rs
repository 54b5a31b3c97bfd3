//! The parts that all products of block formats share: their parameters and the scales of blocks.

use std::array::from_fn;
use std::ops::Range;

use super::formats::StaticFormat;
use super::sums::PanelSums;
use crate::isa::{Isa, LANES};
use crate::pack::{Matrix, Scales};
use crate::quantize::Int8Rows;

/// The products of some panels and some tokens.
pub(super) struct Call<'a> {
    pub(super) matrix: &'a Matrix,
    pub(super) panels: Range<usize>,
    pub(super) x: &'a Int8Rows,
    pub(super) tokens: Range<usize>,
    pub(super) out: &'a mut PanelSums,
}

/// Returns the scale of a block's sums, and the minimum that is added to each of its weights.
#[inline(always)]
pub(super) fn scale_and_minimum<I: Isa, K: StaticFormat>(isa: I, scales: &[u8], block: usize) -> (I::F, I::F) {
    match K::SPEC.scales {
        Scales::Scale { offset } => {
            let scale = halves(isa, scales, 0);
            (scale, isa.mul(scale, isa.splat(-f32::from(offset))))
        }
        Scales::ScaleMinimum => (halves(isa, scales, 0), halves(isa, scales, 1)),
        Scales::Pairs | Scales::Halves => {
            let bytes = scales.as_chunks().0;
            let minimum = isa.mul(halves(isa, scales, 9), isa.load_u8(&bytes[8 + block]));
            (isa.mul(halves(isa, scales, 8), isa.load_u8(&bytes[block])), isa.sub(isa.splat(-0.0), minimum))
        }
    }
}

/// Returns the scale of the sums of half a block.
#[inline(always)]
pub(super) fn scale_of_half<I: Isa>(isa: I, scales: &[u8], half: usize) -> I::F {
    isa.mul(halves(isa, scales, 8), isa.load_i8(&scales.as_chunks().0[half]))
}

/// Loads the `index`th 16 bytes of scales as eight f16.
#[inline(always)]
pub(super) fn halves<I: Isa>(isa: I, scales: &[u8], index: usize) -> I::F {
    let bytes: &[u8; 2 * LANES] = &scales.as_chunks().0[index];
    isa.load_f16(&from_fn(|i| u16::from_le_bytes([bytes[2 * i], bytes[2 * i + 1]])))
}

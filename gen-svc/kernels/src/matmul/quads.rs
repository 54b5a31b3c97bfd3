//! Products of two panels of small integers, 16 rows of weights, and several rows of small integers.
//! The codes of a block stay in registers while they multiply the tokens.
//!
//! Sums within 32 columns are exact in any order. The scaled sums are added in the order of
//! [`integers`](super::integers), so the results are identical to the bit.

use std::array::from_fn;

use super::blocks::{Call, scale_and_minimum, scale_of_half};
use super::formats::StaticFormat;
use super::prefetch::distance;
use crate::buffer::CACHE_LINE_BYTES;
use crate::isa::{BLOCK, Isa, LANES, Quads};
use crate::pack::{Codes, Scales};
use crate::quantize::Factors;

/// Groups of four columns in a block.
const GROUPS: usize = BLOCK / 4;

/// Computes the products of a call.
#[inline(always)]
pub(super) fn compute<I: Isa, K: StaticFormat>(isa: I, quads: I::Quads, call: &mut Call<'_>) {
    let tokens = call.tokens.len();
    for panel in (0..call.panels.len()).step_by(2) {
        let mut token = 0;
        while token < tokens {
            // The last tile may compute tokens again, which is faster than several small tiles.
            token = match tokens - token {
                5.. if tokens >= 8 => tile::<I, K, 8>(isa, quads, call, panel, token),
                3.. if tokens >= 4 => tile::<I, K, 4>(isa, quads, call, panel, token),
                2.. => tile::<I, K, 2>(isa, quads, call, panel, token),
                _ => tile::<I, K, 1>(isa, quads, call, panel, token),
            };
        }
    }
}

/// Computes the products of two panels and `T` tokens, from `token` on or at the end of the tokens.
/// Returns the end of the computed tokens.
#[inline(always)]
fn tile<I: Isa, K: StaticFormat, const T: usize>(
    isa: I,
    quads: I::Quads,
    call: &mut Call<'_>,
    panel: usize,
    token: usize,
) -> usize {
    let (is_first, token) = (token == 0, token.min(call.tokens.len() - T));
    // Without a second panel, the first one is computed twice.
    let second = (panel + 1).min(call.panels.len() - 1);
    let panels = [panel, second].map(|panel| call.matrix.panel(call.panels.start + panel));
    let x: [_; T] = from_fn(|t| call.x.row(call.tokens.start + token + t));
    let sums = products::<I, K, T>(isa, quads, panels, x, is_first);
    for (t, sums) in sums.into_iter().enumerate() {
        let [low, high] = isa.split(sums);
        isa.store(low, &mut call.out[panel * call.tokens.len() + token + t]);
        isa.store(high, &mut call.out[second * call.tokens.len() + token + t]);
    }
    token + T
}

/// Returns the sums of `T` tokens. The first tile of a pair of panels reads the weights from memory
/// and prefetches them.
#[inline(always)]
fn products<I: Isa, K: StaticFormat, const T: usize>(
    isa: I,
    quads: I::Quads,
    panels: [&[u8]; 2],
    x: [(&[[u8; BLOCK]], &[Factors]); T],
    is_first: bool,
) -> [I::W; T] {
    let (unit_bytes, blocks) = const { (K::SPEC.unit_bytes(), K::SPEC.columns / BLOCK) };
    let units = x[0].0.len() / blocks;
    let x = x.map(|(values, factors)| (&values[..units * blocks], &factors[..units * blocks]));
    let panels = panels.map(|panel| &panel[..units * unit_bytes]);
    let mut sums = [isa.splat(0.0); T];
    for unit in 0..units {
        let distance = distance(panels.len(), unit, units, unit_bytes);
        let unit_parts = panels.map(|panel| panel[unit * unit_bytes..][..unit_bytes].split_at(K::SPEC.code_bytes()));
        for block in 0..blocks {
            if is_first {
                for panel in panels {
                    prefetch_block::<I, K>(isa, &panel[unit * unit_bytes..], distance, block);
                }
            }
            let x = x.map(|(values, factors)| (&values[unit * blocks + block], &factors[unit * blocks + block]));
            let codes = codes::<I, K>(quads, unit_parts.map(|(codes, _)| codes), block);
            if matches!(K::SPEC.scales, Scales::Halves) {
                for half in 0..2 {
                    let first = scale_of_half(isa, unit_parts[0].1, 2 * block + half);
                    let second = scale_of_half(isa, unit_parts[1].1, 2 * block + half);
                    let dots = dots::<I, K, T, { GROUPS / 2 }>(quads, &codes.as_chunks().0[half], 4 * half, x);
                    add_scaled::<I, T>(isa, quads, dots, isa.join(first, second), x, &mut sums);
                }
                continue;
            }
            let dots = dots::<I, K, T, GROUPS>(quads, &codes, 0, x);
            let first = scale_and_minimum::<I, K>(isa, unit_parts[0].1, block);
            let second = scale_and_minimum::<I, K>(isa, unit_parts[1].1, block);
            add_scaled::<I, T>(isa, quads, dots, isa.join(first.0, second.0), x, &mut sums);
            if !matches!(K::SPEC.scales, Scales::Scale { offset: 0 }) {
                let minimum = isa.join(first.1, second.1);
                for t in 0..T {
                    sums[t] = isa.fma(minimum, isa.splat(x[t].1.sum), sums[t]);
                }
            }
        }
    }
    sums
}

/// Prefetches as many bytes as a block of the unit takes.
#[inline(always)]
fn prefetch_block<I: Isa, K: StaticFormat>(isa: I, unit: &[u8], distance: usize, block: usize) {
    let bytes = const { K::SPEC.unit_bytes().div_ceil(K::SPEC.columns / BLOCK) };
    for line in 0..bytes.div_ceil(CACHE_LINE_BYTES) {
        isa.prefetch(unit, distance + block * bytes + CACHE_LINE_BYTES * line);
    }
}

/// Returns the codes of a block of two panels: four columns per element, as unsigned bytes.
#[inline(always)]
fn codes<I: Isa, K: StaticFormat>(
    quads: I::Quads,
    panels: [&[u8]; 2],
    block: usize,
) -> [<I::Quads as Quads>::Q; GROUPS] {
    let mut out = [quads.splat(0); GROUPS];
    if matches!(K::SPEC.codes, Codes::Nibbles) {
        let panels = panels.map(|codes| codes[128 * block..][..128].as_chunks::<{ 4 * LANES }>().0);
        for run in 0..GROUPS / 2 {
            let both = quads.join(&panels[0][run], &panels[1][run]);
            out[2 * run] = quads.low(both);
            out[2 * run + 1] = quads.high(both);
        }
        return out;
    }
    let panels = panels.map(|codes| codes[256 * block..][..256].as_chunks::<{ 4 * LANES }>().0);
    for group in 0..GROUPS {
        let codes = quads.join(&panels[0][group], &panels[1][group]);
        out[group] = if matches!(K::SPEC.codes, Codes::Signed) { quads.unsigned(codes) } else { codes };
    }
    out
}

/// Returns the sums of the products of some groups of columns, the first of which is `first` in the block.
#[inline(always)]
fn dots<I: Isa, K: StaticFormat, const T: usize, const G: usize>(
    quads: I::Quads,
    codes: &[<I::Quads as Quads>::Q; G],
    first: usize,
    x: [(&[u8; BLOCK], &Factors); T],
) -> [<I::Quads as Quads>::Q; T] {
    let mut sums = [quads.splat(0); T];
    if matches!(K::SPEC.codes, Codes::Signed) {
        for t in 0..T {
            let [low, high] = x[t].1.halves;
            let total = match (G, first) {
                (GROUPS, _) => i32::from(low) + i32::from(high),
                (_, 0) => i32::from(low),
                _ => i32::from(high),
            };
            // Unsigned codes exceed signed ones by 128.
            sums[t] = quads.splat(-128 * total);
        }
    }
    for (group, codes) in codes.iter().enumerate() {
        for t in 0..T {
            sums[t] = quads.add(sums[t], *codes, x[t].0.as_chunks().0[first + group]);
        }
    }
    sums
}

#[inline(always)]
fn add_scaled<I: Isa, const T: usize>(
    isa: I,
    quads: I::Quads,
    dots: [<I::Quads as Quads>::Q; T],
    scale: I::W,
    x: [(&[u8; BLOCK], &Factors); T],
    sums: &mut [I::W; T],
) {
    for t in 0..T {
        sums[t] = isa.fma(quads.floats(dots[t]), isa.mul(scale, isa.splat(x[t].1.scale)), sums[t]);
    }
}

//! Products of panels and rows of small integers. Sums within 32 columns are exact. They are then
//! scaled and added as floats, in the order of the columns.

use std::array::from_fn;
use std::marker::PhantomData;

use super::blocks::{Call, scale_and_minimum, scale_of_half};
use super::formats::StaticFormat;
use super::prefetch::distance;
use crate::buffer::CACHE_LINE_BYTES;
use crate::isa::{BLOCK, Isa, Kernel};
use crate::pack::{BlockFormat, Codes, Scales};
use crate::quantize::Factors;

pub(super) struct Integers<'a, K> {
    call: Call<'a>,
    format: PhantomData<K>,
}

impl<'a, K> Integers<'a, K> {
    pub(super) fn new(call: Call<'a>) -> Self {
        Self { call, format: PhantomData }
    }
}

impl<K: StaticFormat> Kernel for Integers<'_, K> {
    type Output = ();

    #[inline(always)]
    fn run<I: Isa>(mut self, isa: I) {
        let (panels, tokens) = (self.call.panels.len(), self.call.tokens.len());
        if let Some(quads) = isa.quads().filter(|_| tokens > 1) {
            return super::quads::compute::<I, K>(isa, quads, &mut self.call);
        }
        let mut panel = 0;
        while tokens == 1 && panel + 4 <= panels {
            self.tile::<I, 4, 1>(isa, panel, 0);
            panel += 4;
        }
        while panel < panels {
            self.one_panel(isa, panel);
            panel += 1;
        }
    }
}

impl<K: StaticFormat> Integers<'_, K> {
    #[inline(always)]
    fn one_panel<I: Isa>(&mut self, isa: I, panel: usize) {
        let tokens = self.call.tokens.len();
        let mut token = 0;
        while token + 4 <= tokens {
            self.tile::<I, 1, 4>(isa, panel, token);
            token += 4;
        }
        while token + 2 <= tokens {
            self.tile::<I, 1, 2>(isa, panel, token);
            token += 2;
        }
        if token < tokens {
            self.tile::<I, 1, 1>(isa, panel, token);
        }
    }

    #[inline(always)]
    fn tile<I: Isa, const P: usize, const T: usize>(&mut self, isa: I, panel: usize, token: usize) {
        let call = &mut self.call;
        let panels = from_fn(|p| call.matrix.panel(call.panels.start + panel + p));
        let x = from_fn(|t| call.x.row(call.tokens.start + token + t));
        let sums = products::<I, K, P, T>(isa, panels, x);
        for (p, sums) in sums.iter().enumerate() {
            for (t, sum) in sums.iter().enumerate() {
                isa.store(*sum, &mut call.out[(panel + p) * call.tokens.len() + token + t]);
            }
        }
    }
}

#[inline(always)]
fn products<I: Isa, K: StaticFormat, const P: usize, const T: usize>(
    isa: I,
    panels: [&[u8]; P],
    x: [(&[[u8; BLOCK]], &[Factors]); T],
) -> [[I::F; T]; P] {
    let (unit_bytes, blocks) = const { (K::SPEC.unit_bytes(), K::SPEC.columns / BLOCK) };
    let units = x[0].0.len() / blocks;
    let x = x.map(|(values, factors)| (&values[..units * blocks], &factors[..units * blocks]));
    let panels = panels.map(|panel| &panel[..units * unit_bytes]);
    let mut sums = [[isa.splat(0.0); T]; P];
    for unit in 0..units {
        for (panel, sums) in panels.iter().zip(&mut sums) {
            let bytes = &panel[unit * unit_bytes..][..unit_bytes];
            for block in 0..blocks {
                let x = from_fn(|t| (&x[t].0[unit * blocks + block], x[t].1[unit * blocks + block]));
                add_block::<I, K, T>(isa, bytes, block, x, sums);
            }
            prefetch::<I, K>(isa, bytes, distance(P, unit, units, unit_bytes));
        }
    }
    sums
}

/// Prefetches as many bytes as the unit has.
#[inline(always)]
fn prefetch<I: Isa, K: StaticFormat>(isa: I, unit: &[u8], distance: usize) {
    let mut line = 0;
    while line < K::SPEC.unit_bytes() {
        isa.prefetch(unit, distance + line);
        line += CACHE_LINE_BYTES;
    }
}

/// Adds 32 columns of 8 rows to each token's sums.
#[inline(always)]
fn add_block<I: Isa, K: StaticFormat, const T: usize>(
    isa: I,
    unit: &[u8],
    block: usize,
    x: [(&[u8; BLOCK], Factors); T],
    sums: &mut [I::F; T],
) {
    let (codes, scales) = unit.split_at(K::SPEC.code_bytes());
    let values = from_fn(|t| x[t].0);
    if matches!(K::SPEC.scales, Scales::Halves) {
        for half in 0..2 {
            let scale = scale_of_half(isa, scales, 2 * block + half);
            let dots = dot_half::<I, K, T>(isa, codes, 2 * block + half, from_fn(|t| half_of(values[t], half)));
            add_scaled(isa, dots, scale, x, sums);
        }
        return;
    }
    let dots = dot::<I, K, T>(isa, codes, block, values);
    let (scale, minimum) = scale_and_minimum::<I, K>(isa, scales, block);
    add_scaled(isa, dots, scale, x, sums);
    if !matches!(K::SPEC.scales, Scales::Scale { offset: 0 }) {
        for t in 0..T {
            sums[t] = isa.fma(minimum, isa.splat(x[t].1.sum), sums[t]);
        }
    }
}

#[inline(always)]
fn add_scaled<I: Isa, const T: usize>(
    isa: I,
    dots: [I::F; T],
    scale: I::F,
    x: [(&[u8; BLOCK], Factors); T],
    sums: &mut [I::F; T],
) {
    for t in 0..T {
        sums[t] = isa.fma(dots[t], isa.mul(scale, isa.splat(x[t].1.scale)), sums[t]);
    }
}

#[inline(always)]
fn half_of(values: &[u8; BLOCK], half: usize) -> &[u8; 16] {
    &values.as_chunks().0[half]
}

/// Returns sums of 32 products.
#[inline(always)]
fn dot<I: Isa, K: StaticFormat, const T: usize>(isa: I, codes: &[u8], block: usize, x: [&[u8; BLOCK]; T]) -> [I::F; T] {
    if matches!(K::SPEC.codes, Codes::Nibbles) {
        return isa.dot_nibbles(&codes.as_chunks().0[block], x);
    }
    let mut sums = dot_half::<I, K, T>(isa, codes, 2 * block, from_fn(|t| half_of(x[t], 0)));
    let rest = dot_half::<I, K, T>(isa, codes, 2 * block + 1, from_fn(|t| half_of(x[t], 1)));
    for t in 0..T {
        sums[t] = isa.add(sums[t], rest[t]);
    }
    sums
}

/// Returns sums of 16 products of codes that take a byte each.
#[inline(always)]
fn dot_half<I: Isa, K: StaticFormat, const T: usize>(
    isa: I,
    codes: &[u8],
    half: usize,
    x: [&[u8; 16]; T],
) -> [I::F; T] {
    let codes = &codes.as_chunks().0[half];
    match (K::SPEC.codes, K::FORMAT) {
        (Codes::Signed, BlockFormat::Q8_0 | BlockFormat::IQ4_XS) => isa.dot_signed(codes, x),
        (Codes::Signed, _) => isa.dot_narrow(codes, x),
        (Codes::Unsigned | Codes::Nibbles, _) => isa.dot_unsigned(codes, x),
    }
}

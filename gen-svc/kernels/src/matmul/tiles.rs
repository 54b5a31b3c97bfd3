//! Products of panels of small integers and many rows of small integers, computed by the tile unit.
//!
//! Two panels, 16 rows of weights, are unpacked to bytes and to scales of 16 lanes, some columns at
//! a time. They are multiplied by 16 tokens at a time. Sums within 32 columns are exact in any
//! order. The scaled sums are added in the order of [`integers`](super::integers), so the results
//! are identical to the bit.

use std::array::from_fn;
use std::cell::RefCell;
use std::iter;
use std::marker::PhantomData;
use std::ops::Range;

use super::blocks::{Call, scale_and_minimum, scale_of_half};
use super::formats::StaticFormat;
use super::sums::split;
use crate::isa::amx::{Amx, Codes, Sums, Unit};
use crate::isa::{BLOCK, Isa, Kernel, LANES, TILE_ROWS, WIDE};
use crate::pack::{Codes as Stored, Scales};
use crate::quantize::Tile;

/// Blocks of 32 columns that are unpacked at a time.
const UNPACKED_BLOCKS: usize = 24;
/// The number of products that are computed before the sums of the previous round are used.
const STEPS_PER_ROUND: usize = 6;
/// Prefetch distance in blocks, from the current blocks of tokens.
const PREFETCH_BLOCKS: usize = 6;

/// Unpacked blocks of 16 rows. The size of every field is a multiple of a cache line, so every
/// field is aligned to a cache line.
#[repr(C, align(64))]
struct Unpacked {
    codes: [Codes; UNPACKED_BLOCKS],
    /// Scales of each block, or of each half of a block.
    scales: [[f32; WIDE]; 2 * UNPACKED_BLOCKS],
    minima: [[f32; WIDE]; UNPACKED_BLOCKS],
}

/// The working memory of a thread. No content outlives a call.
#[repr(C, align(64))]
struct Scratch {
    unpacked: Unpacked,
    /// Sums of the current round and of the previous round.
    sums: [[Sums; STEPS_PER_ROUND]; 2],
}

// One per thread of the team, kept between products, because it is large.
thread_local! {
    static SCRATCH: RefCell<Box<Scratch>> = RefCell::new(Box::new(Scratch {
        unpacked: Unpacked {
            codes: [[0; _]; UNPACKED_BLOCKS],
            scales: [[0.0; _]; 2 * UNPACKED_BLOCKS],
            minima: [[0.0; _]; UNPACKED_BLOCKS],
        },
        sums: [[[[0; _]; TILE_ROWS]; STEPS_PER_ROUND]; 2],
    }));
}

/// Computes the products of a call.
pub(super) fn compute<K: StaticFormat>(amx: Amx, call: Call<'_>) {
    SCRATCH.with_borrow_mut(|scratch| amx.run(Tiles::<K> { amx, call, scratch, format: PhantomData }));
}

struct Tiles<'a, K> {
    amx: Amx,
    call: Call<'a>,
    scratch: &'a mut Scratch,
    format: PhantomData<K>,
}

impl<K: StaticFormat> Kernel for Tiles<'_, K> {
    type Output = ();

    #[inline(always)]
    fn run<I: Isa>(self, isa: I) {
        let Self { amx, mut call, scratch: Scratch { unpacked, sums }, .. } = self;
        // SAFETY: this is the only unit of the call, and no other call starts within it.
        let mut unit = unsafe { amx.unit(columns::<K>()) };
        call.out.fill([0.0; LANES]);
        for pair in split(0..call.panels.len(), 2) {
            for blocks in split(0..call.matrix.columns() / BLOCK, UNPACKED_BLOCKS) {
                for (half, panel) in pair.clone().enumerate() {
                    let panel = call.matrix.panel(call.panels.start + panel);
                    unpacked.fill::<I, K>(isa, panel, half, blocks.clone());
                }
                for tokens in split(0..call.tokens.len(), TILE_ROWS) {
                    unit.set_rows(tokens.len());
                    let part = Part { pair: pair.start, blocks: blocks.clone(), tokens };
                    part.add::<I, K>(isa, &unit, unpacked, sums, &mut call);
                }
            }
        }
    }
}

/// Returns the columns of a product that share a scale.
const fn columns<K: StaticFormat>() -> usize {
    if matches!(K::SPEC.scales, Scales::Halves) { BLOCK / 2 } else { BLOCK }
}

impl Unpacked {
    /// Unpacks blocks of a panel: the first or the second panel of its pair.
    #[inline(always)]
    fn fill<I: Isa, K: StaticFormat>(&mut self, isa: I, panel: &[u8], half: usize, blocks: Range<usize>) {
        let (unit_bytes, per_unit) = const { (K::SPEC.unit_bytes(), K::SPEC.columns / BLOCK) };
        for (at, block) in blocks.enumerate() {
            let unit = &panel[block / per_unit * unit_bytes..][..unit_bytes];
            // Prefetches the same unit of the pair after this one.
            for line in 0..unit_bytes.div_ceil(64) {
                isa.prefetch(unit, 2 * panel.len() + 64 * line);
            }
            let (codes, scales) = unit.split_at(K::SPEC.code_bytes());
            let block = block % per_unit;
            unpack_codes::<I, K>(isa, codes, block, half, &mut self.codes[at]);
            if matches!(K::SPEC.scales, Scales::Halves) {
                for part in 0..2 {
                    let scale = scale_of_half(isa, scales, 2 * block + part);
                    isa.store(scale, &mut self.scales[2 * at + part].as_chunks_mut().0[half]);
                }
            } else {
                let (scale, minimum) = scale_and_minimum::<I, K>(isa, scales, block);
                isa.store(scale, &mut self.scales[at].as_chunks_mut().0[half]);
                isa.store(minimum, &mut self.minima[at].as_chunks_mut().0[half]);
            }
        }
    }
}

/// Unpacks 32 columns of 8 rows to their half of the 16 rows.
#[inline(always)]
fn unpack_codes<I: Isa, K: StaticFormat>(isa: I, codes: &[u8], block: usize, half: usize, out: &mut Codes) {
    let runs = out.as_chunks_mut::<{ 2 * BLOCK }>().0;
    if matches!(K::SPEC.codes, Stored::Nibbles) {
        let codes: &[u8; 128] = &codes.as_chunks().0[block];
        for ([low, high], codes) in runs.as_chunks_mut::<2>().0.iter_mut().zip(codes.as_chunks::<BLOCK>().0) {
            let [low, high] = [low, high].map(|run| &mut run.as_chunks_mut::<BLOCK>().0[half]);
            isa.store_nibbles(codes, low, high);
        }
    } else {
        let codes: &[u8; 256] = &codes.as_chunks().0[block];
        for (run, codes) in runs.iter_mut().zip(codes.as_chunks::<BLOCK>().0) {
            run.as_chunks_mut::<BLOCK>().0[half] = *codes;
        }
    }
}

/// Two panels, their unpacked blocks, and at most 16 tokens. Indices of panels and tokens start at
/// the call's first.
struct Part {
    pair: usize,
    blocks: Range<usize>,
    tokens: Range<usize>,
}

impl Part {
    /// Adds the part's products to the tokens' sums.
    #[inline(always)]
    fn add<I: Isa, K: StaticFormat>(
        &self,
        isa: I,
        unit: &Unit,
        unpacked: &Unpacked,
        sums: &mut [[Sums; STEPS_PER_ROUND]; 2],
        call: &mut Call<'_>,
    ) {
        let steps = self.blocks.len() * BLOCK / columns::<K>();
        let [mut current, mut previous] = sums.each_mut();
        let mut done = 0..0;
        for next in split(0..steps, STEPS_PER_ROUND).chain(iter::once(steps..steps)) {
            // If the number of steps is odd, the last step is computed twice.
            for (sums, step) in current.as_chunks_mut::<2>().0.iter_mut().zip(next.clone().step_by(2)) {
                let steps = [step, (step + 1).min(next.end - 1)];
                self.multiply::<I, K>(isa, unit, unpacked, steps, call, sums);
            }
            match done.len() {
                STEPS_PER_ROUND => self.scale::<I, K, STEPS_PER_ROUND>(isa, unpacked, done.start, previous, call),
                _ => {
                    let (twos, one) = previous[..done.len()].as_chunks::<2>();
                    for (step, sums) in (done.start..).step_by(2).zip(twos) {
                        self.scale::<I, K, 2>(isa, unpacked, step, sums, call);
                    }
                    if let [one] = one {
                        self.scale::<I, K, 1>(isa, unpacked, done.end - 1, std::array::from_ref(one), call);
                    }
                }
            }
            std::mem::swap(&mut current, &mut previous);
            done = next;
        }
    }

    #[inline(always)]
    fn multiply<I: Isa, K: StaticFormat>(
        &self,
        isa: I,
        unit: &Unit,
        unpacked: &Unpacked,
        steps: [usize; 2],
        call: &Call<'_>,
        sums: &mut [Sums; 2],
    ) {
        let blocks = steps.map(|step| step * columns::<K>() / BLOCK);
        let parts = steps.map(|step| step * columns::<K>() % BLOCK / columns::<K>());
        let tiles = &call.x.tiles(call.tokens.start + self.tokens.start)[self.blocks.clone()];
        let (x, codes) = (blocks.map(|block| &tiles[block].values), blocks.map(|block| &unpacked.codes[block]));
        for x in x {
            for line in 0..size_of::<Tile>() / 64 {
                isa.prefetch(x.as_flattened(), PREFETCH_BLOCKS * size_of::<Tile>() + 64 * line);
            }
        }
        if matches!(K::SPEC.codes, Stored::Signed) {
            unit.multiply::<true>(x, codes, parts, sums.each_mut());
        } else {
            unit.multiply::<false>(x, codes, parts, sums.each_mut());
        }
    }

    /// Scales the sums of `S` steps and adds them to the results.
    #[inline(always)]
    fn scale<I: Isa, K: StaticFormat, const S: usize>(
        &self,
        isa: I,
        unpacked: &Unpacked,
        step: usize,
        sums: &[Sums; S],
        call: &mut Call<'_>,
    ) {
        let has_minimum = !matches!(K::SPEC.scales, Scales::Scale { offset: 0 } | Scales::Halves);
        let (first, second) = call.out[self.pair * call.tokens.len()..].split_at_mut(call.tokens.len());
        let blocks: [usize; S] = from_fn(|s| (step + s) * columns::<K>() / BLOCK);
        let scales: [I::W; S] = from_fn(|s| isa.wide_load(&unpacked.scales[step + s]));
        let minima = blocks.map(|block| isa.wide_load(&unpacked.minima[block]));
        let tiles = &call.x.tiles(call.tokens.start + self.tokens.start)[self.blocks.clone()];
        let factors = blocks.map(|block| &tiles[block].factors);
        for (row, token) in self.tokens.clone().enumerate().take(TILE_ROWS) {
            let other = second.get(token).map_or(isa.splat(0.0), |lanes| isa.load(lanes));
            let mut total = isa.join(isa.load(&first[token]), other);
            for s in 0..S {
                let factors = factors[s][row];
                let scale = isa.mul(scales[s], isa.splat(factors.scale));
                total = isa.fma(isa.wide_load_i32(&sums[s][row]), scale, total);
                if has_minimum {
                    total = isa.fma(minima[s], isa.splat(factors.sum), total);
                }
            }
            let [lanes, other] = isa.split(total);
            isa.store(lanes, &mut first[token]);
            if let Some(second) = second.get_mut(token) {
                isa.store(other, second);
            }
        }
    }
}

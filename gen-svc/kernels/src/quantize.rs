//! Quantization to integers. Weights are quantized once, at load. Activations are quantized before
//! every product with integer weights.

use std::array::from_fn;

use crate::clock::Part;
use crate::disjoint::Disjoint;
use crate::error::{Error, expect_multiple};
use crate::half::f32_to_f16;
use crate::isa::{BLOCK, Isa, IsaLevel, Kernel, LANES, TILE_ROWS};
use crate::kernels::Kernels;
use crate::pool::Team;

/// Rows of activations as 8-bit integers with a scale per 32 columns. Reused between steps, so that
/// memory is allocated only if a step needs more.
#[derive(Debug, Default)]
pub struct Int8Rows {
    rows: usize,
    columns: usize,
    /// \[rows\]\[columns / 32\]: two's complement, -127..=127. Empty if `tiles` is used.
    values: Vec<[u8; BLOCK]>,
    /// \[rows\]\[columns / 32\]. Empty if `tiles` is used.
    factors: Vec<Factors>,
    /// \[rows / 16\]\[columns / 32\]. Empty if `values` is used.
    tiles: Vec<Tile>,
}

/// One block of 16 rows.
#[derive(Debug, Clone, Copy, Default)]
#[repr(C, align(64))]
pub(crate) struct Tile {
    pub(crate) values: [[u8; BLOCK]; TILE_ROWS],
    pub(crate) factors: [Factors; TILE_ROWS],
}

/// The smallest number of rows for which the tile unit is faster.
const MIN_TILED_ROWS: usize = 8;

/// The factors that convert a block's integers to values.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Factors {
    /// A value is its integer times the scale. NaN if a value of the block is not finite.
    pub(crate) scale: f32,
    /// The sum of the block's values, which multiplies the minimum of a block of weights.
    pub(crate) sum: f32,
    /// The sums of the integers in the first and in the second half.
    pub(crate) halves: [i16; 2],
}

impl Int8Rows {
    #[must_use]
    pub fn columns(&self) -> usize {
        self.columns
    }

    #[must_use]
    pub fn rows(&self) -> usize {
        self.rows
    }

    /// Returns the integers of one row, and the factors of its blocks.
    #[inline(always)]
    pub(crate) fn row(&self, row: usize) -> (&[[u8; BLOCK]], &[Factors]) {
        let blocks = self.columns / BLOCK;
        (&self.values[row * blocks..][..blocks], &self.factors[row * blocks..][..blocks])
    }

    /// Returns all blocks of the 16 rows from `row` on, which is the first row of a tile. If fewer
    /// rows are left, the content of the missing rows is unspecified.
    #[cfg(target_arch = "x86_64")]
    #[inline(always)]
    pub(crate) fn tiles(&self, row: usize) -> &[Tile] {
        let blocks = self.columns / BLOCK;
        &self.tiles[row / TILE_ROWS * blocks..][..blocks]
    }

    /// Returns true if `tiles` is used, false if `values` is.
    pub(crate) fn has_tiles(&self) -> bool {
        !self.tiles.is_empty()
    }

    /// Replaces the content by `x`, quantized: \[rows\]\[columns\].
    pub(crate) fn fill(&mut self, team: &Team, level: IsaLevel, x: &[f32], columns: usize) -> Result<(), Error> {
        expect_multiple("columns of quantized input", BLOCK, columns)?;
        expect_multiple("quantized input", columns, x.len())?;
        (self.rows, self.columns) = (x.len() / columns, columns);
        let tiled = level.has_tiles() && self.rows >= MIN_TILED_ROWS;
        let blocks = columns / BLOCK;
        self.tiles.resize(if tiled { self.rows.div_ceil(TILE_ROWS) * blocks } else { 0 }, Tile::default());
        self.values.resize(if tiled { 0 } else { x.len() / BLOCK }, [0; BLOCK]);
        self.factors.resize(self.values.len(), Factors::default());
        let x = x.as_chunks().0;
        if tiled {
            team.run_on_chunks(&mut self.tiles, blocks, &|group, tiles| {
                level.run(QuantizeTiles { x: &x[group * TILE_ROWS * blocks..], tiles });
            });
        } else {
            let factors = Disjoint::new(&mut self.factors);
            team.run_on_chunks(&mut self.values, BLOCKS_PER_TASK, &|task, values| {
                let start = task * BLOCKS_PER_TASK;
                // SAFETY: the parts are those of `values`, in which no two tasks share a block.
                let factors = unsafe { factors.slice(start, values.len()) };
                level.run(Quantize { x: &x[start..][..values.len()], values, factors });
            });
        }
        Ok(())
    }
}

impl Kernels {
    /// Quantizes `x`, \[rows\]\[columns\], into `out`.
    pub fn quantize(&self, x: &[f32], columns: usize, out: &mut Int8Rows) -> Result<(), Error> {
        let _running = self.time(Part::Quantizing);
        out.fill(&self.team, self.level, x, columns)
    }
}

/// Blocks per task: 32 KiB of input.
const BLOCKS_PER_TASK: usize = 256;

struct Quantize<'a> {
    x: &'a [[f32; BLOCK]],
    values: &'a mut [[u8; BLOCK]],
    factors: &'a mut [Factors],
}

impl Kernel for Quantize<'_> {
    type Output = ();

    #[inline(always)]
    fn run<I: Isa>(self, isa: I) {
        for ((x, values), factors) in self.x.iter().zip(self.values).zip(self.factors) {
            *factors = quantize_block(isa, x, values);
        }
    }
}

/// Quantizes the tiles of 16 rows, or of fewer rows at the end.
struct QuantizeTiles<'a> {
    /// The input, starting at the first of the rows.
    x: &'a [[f32; BLOCK]],
    tiles: &'a mut [Tile],
}

impl Kernel for QuantizeTiles<'_> {
    type Output = ();

    #[inline(always)]
    fn run<I: Isa>(self, isa: I) {
        for (row, x) in self.x.chunks_exact(self.tiles.len()).take(TILE_ROWS).enumerate() {
            for (x, tile) in x.iter().zip(&mut *self.tiles) {
                tile.factors[row] = quantize_block(isa, x, &mut tile.values[row]);
            }
        }
    }
}

/// Quantizes a block. The scale is the largest magnitude divided by 127. Values are rounded to the
/// nearest integer, ties to even.
///
/// A block with infinity or NaN has NaN factors.
#[inline(always)]
fn quantize_block<I: Isa>(isa: I, x: &[f32; BLOCK], values: &mut [u8; BLOCK]) -> Factors {
    let x: [I::F; BLOCK / LANES] = from_fn(|i| isa.load(&x.as_chunks().0[i]));
    let mut greatest = isa.abs(x[0]);
    // Zero, unless a value is not finite.
    let mut remainder = isa.sub(x[0], x[0]);
    for x in &x[1..] {
        greatest = isa.max(isa.abs(*x), greatest);
        remainder = isa.add(isa.sub(*x, *x), remainder);
    }
    if isa.sum(remainder).is_nan() {
        *values = [0; BLOCK];
        return Factors { scale: f32::NAN, sum: f32::NAN, halves: [0; 2] };
    }
    let greatest = isa.greatest(greatest);
    let scale = greatest / 127.0;
    let inverse = isa.splat(if scale >= f32::MIN_POSITIVE { 127.0 / greatest } else { 0.0 });
    let [first, second] = isa.store_bytes(x.map(|x| isa.mul(x, inverse)), values);
    // Sixteen integers of at most 127 fit 16 bits.
    Factors { scale, sum: scale * (first + second) as f32, halves: [first as i16, second as i16] }
}

/// Encodes 32 weights as a Q8_0 block of a file by ggml's reference rule: scale = largest magnitude
/// over 127, nearest integers.
pub(crate) fn q8_0(values: &[f32; BLOCK]) -> [u8; 34] {
    let greatest = values.iter().fold(0.0, |greatest, value| nan_or(value.abs(), greatest, f32::max));
    let scale = greatest / 127.0;
    let inverse = if scale == 0.0 { 0.0 } else { 1.0 / scale };
    let mut block = [0; 34];
    block[..2].copy_from_slice(&f32_to_f16(scale).to_le_bytes());
    for (byte, value) in block[2..].iter_mut().zip(values) {
        *byte = ((value * inverse).round() as i8).cast_unsigned();
    }
    block
}

/// Encodes 32 weights as a Q4_1 block of a file by ggml's reference rule: 15 equal steps from the
/// smallest to the largest value.
pub(crate) fn q4_1(values: &[f32; BLOCK]) -> [u8; 20] {
    let least = values.iter().fold(f32::INFINITY, |least, value| nan_or(*value, least, f32::min));
    let greatest = values.iter().fold(f32::NEG_INFINITY, |greatest, value| nan_or(*value, greatest, f32::max));
    let scale = (greatest - least) / 15.0;
    let inverse = if scale == 0.0 { 0.0 } else { 1.0 / scale };
    let code = |value: f32| ((value - least) * inverse + 0.5).min(15.0) as u8;
    let mut block = [0; 20];
    block[..2].copy_from_slice(&f32_to_f16(scale).to_le_bytes());
    block[2..4].copy_from_slice(&f32_to_f16(least).to_le_bytes());
    for i in 0..BLOCK / 2 {
        block[4 + i] = code(values[i]) | code(values[i + BLOCK / 2]) << 4;
    }
    block
}

/// Returns `of(a, b)`, or NaN if one of the values is NaN.
fn nan_or(a: f32, b: f32, of: fn(f32, f32) -> f32) -> f32 {
    if a.is_nan() || b.is_nan() { f32::NAN } else { of(a, b) }
}

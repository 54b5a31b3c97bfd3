//! The vector operations that kernels use.

use std::marker::PhantomData;

use super::sizes::{LANES, Pair, WIDE};

/// A computation that can run with the vector operations of any level.
///
/// `run` and all functions that it calls must be `#[inline(always)]`, so that they are compiled
/// with the level's instructions.
pub(crate) trait Kernel {
    type Output;

    fn run<I: Isa>(self, isa: I) -> Self::Output;
}

/// Arithmetic on vectors of one type.
pub(crate) trait Arithmetic<V: Copy>: Copy {
    fn splat(self, value: f32) -> V;
    fn add(self, a: V, b: V) -> V;
    fn sub(self, a: V, b: V) -> V;
    fn mul(self, a: V, b: V) -> V;
    fn div(self, a: V, b: V) -> V;
    /// Returns `a * b + c`, rounded once.
    fn fma(self, a: V, b: V, c: V) -> V;
    /// Returns `a` where it is greater, else `b`: a NaN in `b` is kept, a NaN in `a` is not.
    fn max(self, a: V, b: V) -> V;
    /// Returns `a` where it is less, else `b`: a NaN in `b` is kept, a NaN in `a` is not.
    fn min(self, a: V, b: V) -> V;
    fn abs(self, a: V) -> V;
    /// Returns `yes` where `a < b`, else `no`.
    fn select_less(self, a: V, b: V, yes: V, no: V) -> V;
    /// Rounds to the nearest integer, ties to even.
    fn round(self, a: V) -> V;
    /// Returns two to the power of an integer within -126..=127.
    fn exp2(self, a: V) -> V;
}

/// Vectors of sixteen lanes, in one register or in two.
pub(crate) trait Wide: Copy {
    /// A vector of eight numbers.
    type F: Copy;
    /// A vector of sixteen numbers.
    type W: Copy;
    /// The number of vector registers.
    const REGISTERS: usize;

    fn wide_load(self, from: &[f32; WIDE]) -> Self::W;
    fn wide_store(self, lanes: Self::W, to: &mut [f32; WIDE]);
    fn wide_load_f16(self, from: &[u16; WIDE]) -> Self::W;
    /// Converts integers within ±2^24 to floats.
    fn wide_load_i32(self, from: &[i32; WIDE]) -> Self::W;
    /// Broadcasts the first number of a pair of bf16, and the second.
    fn wide_splat_pair(self, pair: Pair) -> [Self::W; 2];
    fn join(self, first: Self::F, second: Self::F) -> Self::W;
    fn split(self, lanes: Self::W) -> [Self::F; 2];
    /// Adds all lanes of each vector: the first eight to the last eight, lane by lane, then as
    /// [`Isa::sum`].
    fn sums(self, vectors: &[Self::W; WIDE]) -> Self::W;
    /// Returns the largest lane of each vector. The result is unspecified if a lane is NaN.
    fn greatest_lanes(self, vectors: &[Self::W; WIDE]) -> Self::W;
}

/// Adds all lanes of each vector, one vector after the other.
#[inline(always)]
pub(super) fn sums<I: Isa>(isa: I, vectors: &[I::W; WIDE]) -> I::W {
    let mut sums = [0.0; WIDE];
    for i in 0..WIDE {
        let [first, second] = isa.split(vectors[i]);
        sums[i] = isa.sum(isa.add(first, second));
    }
    isa.wide_load(&sums)
}

/// Returns the largest lane of each vector, one vector after the other.
#[inline(always)]
pub(super) fn greatest_lanes<I: Isa>(isa: I, vectors: &[I::W; WIDE]) -> I::W {
    let mut greatest = [0.0; WIDE];
    for i in 0..WIDE {
        let [first, second] = isa.split(vectors[i]);
        greatest[i] = isa.greatest(isa.max(first, second));
    }
    isa.wide_load(&greatest)
}

/// Operations on eight lanes. A value of the type proves that the processor has the instructions.
pub(crate) trait Isa: Wide + Arithmetic<Self::F> + Arithmetic<Self::W> {
    fn load(self, from: &[f32; LANES]) -> Self::F;
    fn store(self, lanes: Self::F, to: &mut [f32; LANES]);
    fn load_f16(self, from: &[u16; LANES]) -> Self::F;
    /// Rounds to nearest, ties to even.
    fn store_f16(self, lanes: Self::F, to: &mut [u16; LANES]);
    /// Loads the first numbers of eight pairs of bf16, and the second numbers.
    fn load_pairs(self, from: &[Pair; LANES]) -> [Self::F; 2];
    fn load_u8(self, from: &[u8; LANES]) -> Self::F;
    fn load_i8(self, from: &[u8; LANES]) -> Self::F;
    /// Rounds numbers within ±127 to the nearest integer, ties to even, and stores them as bytes.
    /// Returns the sum of the first sixteen integers and of the others.
    fn store_bytes(self, a: [Self::F; 4], to: &mut [u8; 4 * LANES]) -> [i32; 2];
    /// Adds all lanes in a fixed order: the first four to the last four, lane by lane, then halves
    /// again.
    fn sum(self, a: Self::F) -> f32;
    /// Returns the largest lane. The result is unspecified if a lane is NaN.
    fn greatest(self, a: Self::F) -> f32;
    /// Prefetches the cache line `ahead` bytes after the start of `from`. The address need not be
    /// valid.
    fn prefetch<T>(self, from: &[T], ahead: usize);

    /// Loads up to eight numbers. Lanes beyond the slice are `fill`.
    #[inline(always)]
    fn load_part(self, from: &[f32], fill: f32) -> Self::F {
        if let Some(whole) = from.first_chunk() {
            return self.load(whole);
        }
        let mut filled = [fill; LANES];
        filled[..from.len()].copy_from_slice(from);
        self.load(&filled)
    }

    /// Stores as many lanes as `to` has elements, at most eight.
    #[inline(always)]
    fn store_part(self, lanes: Self::F, to: &mut [f32]) {
        if let Some(whole) = to.first_chunk_mut() {
            return self.store(lanes, whole);
        }
        let mut all = [0.0; LANES];
        self.store(lanes, &mut all);
        to.copy_from_slice(&all[..to.len()]);
    }

    /// Loads sixteen numbers, or eight followed by zeros.
    #[inline(always)]
    fn wide_load_part(self, from: &[f32]) -> Self::W {
        match from.first_chunk() {
            Some(whole) => self.wide_load(whole),
            None => self.join(self.load_part(from, 0.0), self.splat(0.0)),
        }
    }

    /// Stores the first lanes, as many as `to` has elements: sixteen or eight.
    #[inline(always)]
    fn wide_store_part(self, lanes: Self::W, to: &mut [f32]) {
        match to.first_chunk_mut() {
            Some(whole) => self.wide_store(lanes, whole),
            None => self.store_part(self.split(lanes)[0], to),
        }
    }

    /// Products of four bytes per lane, if the level has fast ones.
    type Quads: Quads<W = Self::W>;

    fn quads(self) -> Option<Self::Quads>;

    /// Splits bytes into their lower and upper four bits.
    fn store_nibbles(self, bytes: &[u8; 32], low: &mut [u8; 32], high: &mut [u8; 32]);
    /// Returns, per lane (row of weights) and token, the sum of 32 products.
    ///
    /// Codes are 0..=15 in 4 runs of 32 bytes. Byte 4r + j of run h holds two columns of row r.
    /// Column 8h + j is in its lower four bits, column 8h + 4 + j in its upper four. Activations
    /// are -127..=127.
    fn dot_nibbles<const T: usize>(self, codes: &[u8; 128], x: [&[u8; 32]; T]) -> [Self::F; T];
    /// Returns, per lane and token, the sum of 16 products. Codes are 0..=31: byte 4r + j of run g
    /// holds column 4g + j of row r.
    fn dot_unsigned<const T: usize>(self, codes: &[u8; 128], x: [&[u8; 16]; T]) -> [Self::F; T];
    /// Computes `dot_unsigned` with codes of -32..=31.
    fn dot_narrow<const T: usize>(self, codes: &[u8; 128], x: [&[u8; 16]; T]) -> [Self::F; T];
    /// Computes `dot_unsigned` with codes of -128..=127.
    fn dot_signed<const T: usize>(self, codes: &[u8; 128], x: [&[u8; 16]; T]) -> [Self::F; T];
}

/// Sums of products of bytes in sixteen lanes, which are rows of weights. A lane has four columns.
pub(crate) trait Quads: Copy {
    /// Four bytes per lane, or an integer.
    type Q: Copy;
    /// A vector of sixteen numbers.
    type W: Copy;

    /// Joins four columns of the 8 rows of one panel and of another.
    fn join(self, first: &[u8; 32], second: &[u8; 32]) -> Self::Q;
    /// Returns the lower four bits of each byte.
    fn low(self, bytes: Self::Q) -> Self::Q;
    /// Returns the upper four bits of each byte.
    fn high(self, bytes: Self::Q) -> Self::Q;
    /// Adds 128 to signed bytes, which makes them unsigned.
    fn unsigned(self, bytes: Self::Q) -> Self::Q;
    fn splat(self, integer: i32) -> Self::Q;
    /// Adds the products of unsigned codes and four activations.
    fn add(self, sums: Self::Q, codes: Self::Q, x: [u8; 4]) -> Self::Q;
    fn floats(self, sums: Self::Q) -> Self::W;
}

/// The products of a level that has none.
#[derive(Debug, Clone, Copy)]
pub(crate) struct NoQuads<W> {
    never: Never,
    width: PhantomData<W>,
}

#[derive(Debug, Clone, Copy)]
enum Never {}

impl<W: Copy> Quads for NoQuads<W> {
    type Q = ();
    type W = W;

    fn join(self, _first: &[u8; 32], _second: &[u8; 32]) {
        match self.never {}
    }

    fn low(self, (): ()) {
        match self.never {}
    }

    fn high(self, (): ()) {
        match self.never {}
    }

    fn unsigned(self, (): ()) {
        match self.never {}
    }

    fn splat(self, _integer: i32) {
        match self.never {}
    }

    fn add(self, (): (), (): (), _x: [u8; 4]) {
        match self.never {}
    }

    fn floats(self, (): ()) -> W {
        match self.never {}
    }
}

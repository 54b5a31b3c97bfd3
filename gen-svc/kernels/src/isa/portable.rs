//! Plain Rust for every processor. It defines the results of all other levels.

use std::array::from_fn;

use super::operations::{self, Arithmetic, Isa, NoQuads, Wide};
use super::sizes::{LANES, Pair, WIDE};
use crate::half::{bf16_to_f32, f16_to_f32, f32_to_f16};

#[derive(Debug, Clone, Copy)]
pub(super) struct Portable;

impl<const N: usize> Arithmetic<[f32; N]> for Portable {
    #[inline(always)]
    fn splat(self, value: f32) -> [f32; N] {
        [value; N]
    }

    #[inline(always)]
    fn add(self, a: [f32; N], b: [f32; N]) -> [f32; N] {
        from_fn(|i| a[i] + b[i])
    }

    #[inline(always)]
    fn sub(self, a: [f32; N], b: [f32; N]) -> [f32; N] {
        from_fn(|i| a[i] - b[i])
    }

    #[inline(always)]
    fn mul(self, a: [f32; N], b: [f32; N]) -> [f32; N] {
        from_fn(|i| a[i] * b[i])
    }

    #[inline(always)]
    fn div(self, a: [f32; N], b: [f32; N]) -> [f32; N] {
        from_fn(|i| a[i] / b[i])
    }

    #[inline(always)]
    fn fma(self, a: [f32; N], b: [f32; N], c: [f32; N]) -> [f32; N] {
        from_fn(|i| a[i].mul_add(b[i], c[i]))
    }

    #[inline(always)]
    fn max(self, a: [f32; N], b: [f32; N]) -> [f32; N] {
        from_fn(|i| if a[i] > b[i] { a[i] } else { b[i] })
    }

    #[inline(always)]
    fn min(self, a: [f32; N], b: [f32; N]) -> [f32; N] {
        from_fn(|i| if a[i] < b[i] { a[i] } else { b[i] })
    }

    #[inline(always)]
    fn abs(self, a: [f32; N]) -> [f32; N] {
        a.map(f32::abs)
    }

    #[inline(always)]
    fn select_less(self, a: [f32; N], b: [f32; N], yes: [f32; N], no: [f32; N]) -> [f32; N] {
        from_fn(|i| if a[i] < b[i] { yes[i] } else { no[i] })
    }

    #[inline(always)]
    fn round(self, a: [f32; N]) -> [f32; N] {
        a.map(f32::round_ties_even)
    }

    #[inline(always)]
    fn exp2(self, a: [f32; N]) -> [f32; N] {
        a.map(|power| f32::from_bits(((power as i32 + 127) << 23).cast_unsigned()))
    }
}

impl Wide for Portable {
    type F = [f32; LANES];
    type W = [f32; WIDE];
    const REGISTERS: usize = 16;

    #[inline(always)]
    fn wide_load(self, from: &[f32; WIDE]) -> Self::W {
        *from
    }

    #[inline(always)]
    fn wide_store(self, lanes: Self::W, to: &mut [f32; WIDE]) {
        *to = lanes;
    }

    #[inline(always)]
    fn wide_load_f16(self, from: &[u16; WIDE]) -> Self::W {
        from.map(f16_to_f32)
    }

    #[inline(always)]
    fn wide_load_i32(self, from: &[i32; WIDE]) -> Self::W {
        from.map(|integer| integer as f32)
    }

    #[inline(always)]
    fn wide_splat_pair(self, pair: Pair) -> [Self::W; 2] {
        pair.map(|number| [bf16_to_f32(number); WIDE])
    }

    #[inline(always)]
    fn join(self, first: Self::F, second: Self::F) -> Self::W {
        from_fn(|i| if i < LANES { first[i] } else { second[i - LANES] })
    }

    #[inline(always)]
    fn split(self, lanes: Self::W) -> [Self::F; 2] {
        from_fn(|half| from_fn(|i| lanes[half * LANES + i]))
    }

    #[inline(always)]
    fn sums(self, vectors: &[Self::W; WIDE]) -> Self::W {
        operations::sums(self, vectors)
    }

    #[inline(always)]
    fn greatest_lanes(self, vectors: &[Self::W; WIDE]) -> Self::W {
        operations::greatest_lanes(self, vectors)
    }
}

impl Isa for Portable {
    type Quads = NoQuads<[f32; WIDE]>;

    #[inline(always)]
    fn quads(self) -> Option<Self::Quads> {
        None
    }

    #[inline(always)]
    fn load(self, from: &[f32; LANES]) -> Self::F {
        *from
    }

    #[inline(always)]
    fn store(self, lanes: Self::F, to: &mut [f32; LANES]) {
        *to = lanes;
    }

    #[inline(always)]
    fn load_f16(self, from: &[u16; LANES]) -> Self::F {
        from.map(f16_to_f32)
    }

    #[inline(always)]
    fn store_f16(self, lanes: Self::F, to: &mut [u16; LANES]) {
        *to = lanes.map(f32_to_f16);
    }

    #[inline(always)]
    fn load_pairs(self, from: &[Pair; LANES]) -> [Self::F; 2] {
        from_fn(|i| from.map(|pair| bf16_to_f32(pair[i])))
    }

    #[inline(always)]
    fn load_u8(self, from: &[u8; LANES]) -> Self::F {
        from.map(f32::from)
    }

    #[inline(always)]
    fn load_i8(self, from: &[u8; LANES]) -> Self::F {
        from.map(|byte| f32::from(byte.cast_signed()))
    }

    #[inline(always)]
    fn store_bytes(self, a: [Self::F; 4], to: &mut [u8; 4 * LANES]) -> [i32; 2] {
        let mut sums = [0; 2];
        for (i, (value, to)) in a.as_flattened().iter().zip(to).enumerate() {
            let integer = value.round_ties_even() as i32;
            *to = integer as u8;
            sums[i / WIDE] += integer;
        }
        sums
    }

    #[inline(always)]
    fn sum(self, a: Self::F) -> f32 {
        let [a, b, c, d]: [f32; 4] = from_fn(|i| a[i] + a[i + 4]);
        (a + c) + (b + d)
    }

    #[inline(always)]
    fn greatest(self, a: Self::F) -> f32 {
        a.into_iter().fold(f32::NEG_INFINITY, f32::max)
    }

    #[inline(always)]
    fn prefetch<T>(self, _from: &[T], _ahead: usize) {}

    #[inline(always)]
    fn store_nibbles(self, bytes: &[u8; 32], low: &mut [u8; 32], high: &mut [u8; 32]) {
        *low = bytes.map(|byte| byte & 15);
        *high = bytes.map(|byte| byte >> 4);
    }

    #[inline(always)]
    fn dot_nibbles<const T: usize>(self, codes: &[u8; 128], x: [&[u8; 32]; T]) -> [Self::F; T] {
        let code = |row: usize, column: usize| {
            let byte = codes[32 * (column / 8) + 4 * row + column % 4];
            i32::from(byte >> (column % 8 / 4 * 4) & 15)
        };
        dots(x, code)
    }

    #[inline(always)]
    fn dot_unsigned<const T: usize>(self, codes: &[u8; 128], x: [&[u8; 16]; T]) -> [Self::F; T] {
        dots(x, |row, column| i32::from(codes[32 * (column / 4) + 4 * row + column % 4]))
    }

    #[inline(always)]
    fn dot_narrow<const T: usize>(self, codes: &[u8; 128], x: [&[u8; 16]; T]) -> [Self::F; T] {
        self.dot_signed(codes, x)
    }

    #[inline(always)]
    fn dot_signed<const T: usize>(self, codes: &[u8; 128], x: [&[u8; 16]; T]) -> [Self::F; T] {
        dots(x, |row, column| i32::from(codes[32 * (column / 4) + 4 * row + column % 4].cast_signed()))
    }
}

/// Returns sums of products over K columns. They are exact in f32, since they are below 2^24.
#[inline(always)]
fn dots<const K: usize, const T: usize>(x: [&[u8; K]; T], code: impl Fn(usize, usize) -> i32) -> [[f32; LANES]; T] {
    let product = |x: &[u8; K], row, column| code(row, column) * i32::from(x[column].cast_signed());
    from_fn(|token| from_fn(|row| (0..K).map(|column| product(x[token], row, column)).sum::<i32>() as f32))
}

//! The AVX2, FMA and F16C operations that all x86-64 levels share. The levels differ in their
//! integer products and in how they hold sixteen lanes ([`Wide`]).

use std::arch::x86_64::*;
use std::array::from_fn;

use super::operations::{Arithmetic, Isa, Quads, Wide};
use super::sizes::{LANES, Pair};

/// Eight lanes in one register, with the level's own integer products.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct X86<D>(D);

impl<D: Dots> X86<D> {
    /// # Safety
    /// The processor has AVX2, FMA, F16C and the instructions of `D`.
    pub(super) unsafe fn new(dots: D) -> Self {
        Self(dots)
    }
}

/// The `dot_*` products of [`Isa`]. A value proves that the processor has the instructions.
pub(super) trait Dots: Copy {
    type Quads: Quads;

    fn quads(self) -> Option<Self::Quads>;
    fn nibbles<const T: usize>(self, codes: &[u8; 128], x: [&[u8; 32]; T]) -> [__m256; T];
    fn unsigned<const T: usize>(self, codes: &[u8; 128], x: [&[u8; 16]; T]) -> [__m256; T];
    fn narrow<const T: usize>(self, codes: &[u8; 128], x: [&[u8; 16]; T]) -> [__m256; T];
    fn signed<const T: usize>(self, codes: &[u8; 128], x: [&[u8; 16]; T]) -> [__m256; T];
}

/// Calls intrinsics that operate on values.
macro_rules! values {
    ($expression:expr) => {{
        // SAFETY: the intrinsics need only their instructions, which `self` proves.
        unsafe { $expression }
    }};
}

/// Calls an intrinsic that reads or writes through a pointer to a reference of exactly that size.
macro_rules! memory {
    ($expression:expr) => {{
        // SAFETY: the reference covers all bytes that are read or written, no alignment is
        // required, and `self` proves that the instructions exist.
        unsafe { $expression }
    }};
}
pub(super) use {memory, values};

impl<D: Dots> Arithmetic<__m256> for X86<D> {
    #[inline(always)]
    fn splat(self, value: f32) -> __m256 {
        values!(_mm256_set1_ps(value))
    }

    #[inline(always)]
    fn add(self, a: __m256, b: __m256) -> __m256 {
        values!(_mm256_add_ps(a, b))
    }

    #[inline(always)]
    fn sub(self, a: __m256, b: __m256) -> __m256 {
        values!(_mm256_sub_ps(a, b))
    }

    #[inline(always)]
    fn mul(self, a: __m256, b: __m256) -> __m256 {
        values!(_mm256_mul_ps(a, b))
    }

    #[inline(always)]
    fn div(self, a: __m256, b: __m256) -> __m256 {
        values!(_mm256_div_ps(a, b))
    }

    #[inline(always)]
    fn fma(self, a: __m256, b: __m256, c: __m256) -> __m256 {
        values!(_mm256_fmadd_ps(a, b, c))
    }

    #[inline(always)]
    fn max(self, a: __m256, b: __m256) -> __m256 {
        values!(_mm256_max_ps(a, b))
    }

    #[inline(always)]
    fn min(self, a: __m256, b: __m256) -> __m256 {
        values!(_mm256_min_ps(a, b))
    }

    #[inline(always)]
    fn abs(self, a: __m256) -> __m256 {
        values!(_mm256_andnot_ps(_mm256_set1_ps(-0.0), a))
    }

    #[inline(always)]
    fn select_less(self, a: __m256, b: __m256, yes: __m256, no: __m256) -> __m256 {
        values!(_mm256_blendv_ps(no, yes, _mm256_cmp_ps::<_CMP_LT_OQ>(a, b)))
    }

    #[inline(always)]
    fn round(self, a: __m256) -> __m256 {
        values!(_mm256_round_ps::<{ _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC }>(a))
    }

    #[inline(always)]
    fn exp2(self, a: __m256) -> __m256 {
        let biased = values!(_mm256_add_epi32(_mm256_cvtps_epi32(a), _mm256_set1_epi32(127)));
        values!(_mm256_castsi256_ps(_mm256_slli_epi32::<23>(biased)))
    }
}

impl<D: Dots> Isa for X86<D>
where
    Self: Wide<F = __m256> + Arithmetic<<Self as Wide>::W>,
    D::Quads: Quads<W = <Self as Wide>::W>,
{
    type Quads = D::Quads;

    #[inline(always)]
    fn quads(self) -> Option<D::Quads> {
        self.0.quads()
    }

    #[inline(always)]
    fn load(self, from: &[f32; LANES]) -> __m256 {
        memory!(_mm256_loadu_ps(from.as_ptr()))
    }

    #[inline(always)]
    fn store(self, lanes: __m256, to: &mut [f32; LANES]) {
        memory!(_mm256_storeu_ps(to.as_mut_ptr(), lanes));
    }

    #[inline(always)]
    fn load_f16(self, from: &[u16; LANES]) -> __m256 {
        memory!(_mm256_cvtph_ps(_mm_loadu_si128(from.as_ptr().cast())))
    }

    #[inline(always)]
    fn store_f16(self, lanes: __m256, to: &mut [u16; LANES]) {
        let halves = values!(_mm256_cvtps_ph::<_MM_FROUND_TO_NEAREST_INT>(lanes));
        memory!(_mm_storeu_si128(to.as_mut_ptr().cast(), halves));
    }

    #[inline(always)]
    fn load_pairs(self, from: &[Pair; LANES]) -> [__m256; 2] {
        let pairs = memory!(_mm256_loadu_si256(from.as_ptr().cast()));
        let second = values!(_mm256_and_si256(pairs, _mm256_set1_epi32(!0xffff)));
        values!([_mm256_castsi256_ps(_mm256_slli_epi32::<16>(pairs)), _mm256_castsi256_ps(second)])
    }

    #[inline(always)]
    fn load_u8(self, from: &[u8; LANES]) -> __m256 {
        let bytes = memory!(_mm_loadl_epi64(from.as_ptr().cast()));
        values!(_mm256_cvtepi32_ps(_mm256_cvtepu8_epi32(bytes)))
    }

    #[inline(always)]
    fn load_i8(self, from: &[u8; LANES]) -> __m256 {
        let bytes = memory!(_mm_loadl_epi64(from.as_ptr().cast()));
        values!(_mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(bytes)))
    }

    #[inline(always)]
    fn store_bytes(self, a: [__m256; 4], to: &mut [u8; 4 * LANES]) -> [i32; 2] {
        let [a, b, c, d] = a.map(|lanes| values!(_mm256_cvtps_epi32(lanes)));
        // Packing works within halves, which puts groups of four bytes out of order.
        let packed = values!(_mm256_packs_epi16(_mm256_packs_epi32(a, b), _mm256_packs_epi32(c, d)));
        let bytes = values!(_mm256_permutevar8x32_epi32(packed, _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7)));
        memory!(_mm256_storeu_si256(to.as_mut_ptr().cast(), bytes));
        let pairs = values!(_mm256_maddubs_epi16(_mm256_set1_epi8(1), bytes));
        let fours = values!(_mm256_madd_epi16(pairs, _mm256_set1_epi16(1)));
        let halves = values!([_mm256_castsi256_si128(fours), _mm256_extracti128_si256::<1>(fours)]);
        let mut sums = [0; 2];
        for (sum, four) in sums.iter_mut().zip(halves) {
            let two = values!(_mm_add_epi32(four, _mm_unpackhi_epi64(four, four)));
            *sum = values!(_mm_cvtsi128_si32(_mm_add_epi32(two, _mm_shuffle_epi32::<1>(two))));
        }
        sums
    }

    #[inline(always)]
    fn sum(self, a: __m256) -> f32 {
        let four = values!(_mm_add_ps(_mm256_castps256_ps128(a), _mm256_extractf128_ps::<1>(a)));
        let two = values!(_mm_add_ps(four, _mm_movehl_ps(four, four)));
        values!(_mm_cvtss_f32(_mm_add_ss(two, _mm_movehdup_ps(two))))
    }

    #[inline(always)]
    fn greatest(self, a: __m256) -> f32 {
        let four = values!(_mm_max_ps(_mm256_castps256_ps128(a), _mm256_extractf128_ps::<1>(a)));
        let two = values!(_mm_max_ps(four, _mm_movehl_ps(four, four)));
        values!(_mm_cvtss_f32(_mm_max_ss(two, _mm_movehdup_ps(two))))
    }

    #[inline(always)]
    fn prefetch<T>(self, from: &[T], ahead: usize) {
        // A prefetch is a hint and never faults.
        values!(_mm_prefetch::<_MM_HINT_T0>(from.as_ptr().wrapping_byte_add(ahead).cast()));
    }

    #[inline(always)]
    fn store_nibbles(self, bytes: &[u8; 32], low: &mut [u8; 32], high: &mut [u8; 32]) {
        let both = memory!(_mm256_loadu_si256(bytes.as_ptr().cast()));
        let mask = values!(_mm256_set1_epi8(15));
        let upper = values!(_mm256_and_si256(_mm256_srli_epi16::<4>(both), mask));
        memory!(_mm256_storeu_si256(low.as_mut_ptr().cast(), _mm256_and_si256(both, mask)));
        memory!(_mm256_storeu_si256(high.as_mut_ptr().cast(), upper));
    }

    #[inline(always)]
    fn dot_nibbles<const T: usize>(self, codes: &[u8; 128], x: [&[u8; 32]; T]) -> [__m256; T] {
        self.0.nibbles(codes, x)
    }

    #[inline(always)]
    fn dot_unsigned<const T: usize>(self, codes: &[u8; 128], x: [&[u8; 16]; T]) -> [__m256; T] {
        self.0.unsigned(codes, x)
    }

    #[inline(always)]
    fn dot_narrow<const T: usize>(self, codes: &[u8; 128], x: [&[u8; 16]; T]) -> [__m256; T] {
        self.0.narrow(codes, x)
    }

    #[inline(always)]
    fn dot_signed<const T: usize>(self, codes: &[u8; 128], x: [&[u8; 16]; T]) -> [__m256; T] {
        self.0.signed(codes, x)
    }
}

/// Returns the `index`th group of four activations of a block.
#[inline(always)]
pub(super) fn load_four<const K: usize>(x: &[u8; K], index: usize) -> i32 {
    i32::from_le_bytes(from_fn(|i| x[4 * index + i]))
}

/// Returns the 32 bits of a pair as an integer.
#[inline(always)]
pub(super) fn bits(pair: Pair) -> i32 {
    i32::from(pair[1].cast_signed()) << 16 | i32::from(pair[0])
}

//! AVX-512 with VNNI. One instruction adds four products of bytes to 32 bits, for two runs of codes
//! at once. Sixteen lanes fit into one register.

use std::arch::x86_64::*;

use super::operations::{Arithmetic, Isa, Kernel, Quads, Wide};
use super::sizes::{Pair, WIDE};
use super::x86::{Dots, X86, bits, memory, values};

pub(super) type Avx512 = X86<Fours>;

/// Integer products by `vpdpbusd`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Fours(());

pub(super) fn detect() -> Option<Avx512> {
    let base = is_x86_feature_detected!("avx2") && is_x86_feature_detected!("fma") && is_x86_feature_detected!("f16c");
    let wide = is_x86_feature_detected!("avx512f") && is_x86_feature_detected!("avx512bw");
    let available = base && wide && is_x86_feature_detected!("avx512vl") && is_x86_feature_detected!("avx512vnni");
    // SAFETY: the processor has the instructions, as just detected.
    available.then(|| unsafe { X86::new(Fours(())) })
}

pub(super) fn run<K: Kernel>(isa: Avx512, kernel: K) -> K::Output {
    #[target_feature(enable = "avx2,fma,f16c,avx512f,avx512bw,avx512vl,avx512vnni")]
    fn compiled<I: Isa, K: Kernel>(isa: I, kernel: K) -> K::Output {
        kernel.run(isa)
    }
    // SAFETY: `isa` proves that the instructions exist.
    unsafe { compiled(isa, kernel) }
}

impl Arithmetic<__m512> for Avx512 {
    #[inline(always)]
    fn splat(self, value: f32) -> __m512 {
        values!(_mm512_set1_ps(value))
    }

    #[inline(always)]
    fn add(self, a: __m512, b: __m512) -> __m512 {
        values!(_mm512_add_ps(a, b))
    }

    #[inline(always)]
    fn sub(self, a: __m512, b: __m512) -> __m512 {
        values!(_mm512_sub_ps(a, b))
    }

    #[inline(always)]
    fn mul(self, a: __m512, b: __m512) -> __m512 {
        values!(_mm512_mul_ps(a, b))
    }

    #[inline(always)]
    fn div(self, a: __m512, b: __m512) -> __m512 {
        values!(_mm512_div_ps(a, b))
    }

    #[inline(always)]
    fn fma(self, a: __m512, b: __m512, c: __m512) -> __m512 {
        values!(_mm512_fmadd_ps(a, b, c))
    }

    #[inline(always)]
    fn max(self, a: __m512, b: __m512) -> __m512 {
        values!(_mm512_max_ps(a, b))
    }

    #[inline(always)]
    fn min(self, a: __m512, b: __m512) -> __m512 {
        values!(_mm512_min_ps(a, b))
    }

    #[inline(always)]
    fn abs(self, a: __m512) -> __m512 {
        values!(_mm512_abs_ps(a))
    }

    #[inline(always)]
    fn select_less(self, a: __m512, b: __m512, yes: __m512, no: __m512) -> __m512 {
        values!(_mm512_mask_blend_ps(_mm512_cmp_ps_mask::<_CMP_LT_OQ>(a, b), no, yes))
    }

    #[inline(always)]
    fn round(self, a: __m512) -> __m512 {
        values!(_mm512_roundscale_ps::<{ _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC }>(a))
    }

    #[inline(always)]
    fn exp2(self, a: __m512) -> __m512 {
        let biased = values!(_mm512_add_epi32(_mm512_cvtps_epi32(a), _mm512_set1_epi32(127)));
        values!(_mm512_castsi512_ps(_mm512_slli_epi32::<23>(biased)))
    }
}

impl Wide for Avx512 {
    type F = __m256;
    type W = __m512;
    const REGISTERS: usize = 32;

    #[inline(always)]
    fn wide_load(self, from: &[f32; WIDE]) -> __m512 {
        memory!(_mm512_loadu_ps(from.as_ptr()))
    }

    #[inline(always)]
    fn wide_store(self, lanes: __m512, to: &mut [f32; WIDE]) {
        memory!(_mm512_storeu_ps(to.as_mut_ptr(), lanes));
    }

    #[inline(always)]
    fn wide_load_f16(self, from: &[u16; WIDE]) -> __m512 {
        memory!(_mm512_cvtph_ps(_mm256_loadu_si256(from.as_ptr().cast())))
    }

    #[inline(always)]
    fn wide_load_i32(self, from: &[i32; WIDE]) -> __m512 {
        memory!(_mm512_cvtepi32_ps(_mm512_loadu_si512(from.as_ptr().cast())))
    }

    #[inline(always)]
    fn wide_splat_pair(self, pair: Pair) -> [Self::W; 2] {
        let pairs = values!(_mm512_set1_epi32(bits(pair)));
        let second = values!(_mm512_and_si512(pairs, _mm512_set1_epi32(!0xffff)));
        values!([_mm512_castsi512_ps(_mm512_slli_epi32::<16>(pairs)), _mm512_castsi512_ps(second)])
    }

    #[inline(always)]
    fn join(self, first: __m256, second: __m256) -> __m512 {
        let (first, second) = values!((_mm512_castps_pd(_mm512_castps256_ps512(first)), _mm256_castps_pd(second)));
        values!(_mm512_castpd_ps(_mm512_insertf64x4::<1>(first, second)))
    }

    #[inline(always)]
    fn split(self, lanes: __m512) -> [__m256; 2] {
        let second = values!(_mm256_castpd_ps(_mm512_extractf64x4_pd::<1>(_mm512_castps_pd(lanes))));
        [values!(_mm512_castps512_ps256(lanes)), second]
    }

    #[inline(always)]
    fn sums(self, vectors: &[__m512; WIDE]) -> __m512 {
        self.fold_lanes::<false>(vectors)
    }

    #[inline(always)]
    fn greatest_lanes(self, vectors: &[__m512; WIDE]) -> __m512 {
        self.fold_lanes::<true>(vectors)
    }
}

impl Avx512 {
    /// Folds the two halves of each vector, then the halves of the result, and so on. Each fold joins
    /// two vectors to one.
    #[inline(always)]
    fn fold_lanes<const GREATEST: bool>(self, vectors: &[__m512; WIDE]) -> __m512 {
        let zero: __m512 = self.splat(0.0);
        let (mut eights, mut fours, mut twos) = ([zero; 8], [zero; 4], [zero; 2]);
        for i in 0..8 {
            // The folds put the vectors in this order.
            let (first, second) = (2 * i, 2 * i + 1);
            let a = vectors[4 * (first % 4) + first / 4];
            let b = vectors[4 * (second % 4) + second / 4];
            let low = values!(_mm512_shuffle_f32x4::<0b01_00_01_00>(a, b));
            let high = values!(_mm512_shuffle_f32x4::<0b11_10_11_10>(a, b));
            eights[i] = self.fold::<GREATEST>(low, high);
        }
        for i in 0..4 {
            let (a, b) = (eights[2 * i], eights[2 * i + 1]);
            let low = values!(_mm512_shuffle_f32x4::<0b10_00_10_00>(a, b));
            let high = values!(_mm512_shuffle_f32x4::<0b11_01_11_01>(a, b));
            fours[i] = self.fold::<GREATEST>(low, high);
        }
        for i in 0..2 {
            let (a, b) = (fours[2 * i], fours[2 * i + 1]);
            let low = values!(_mm512_shuffle_ps::<0b01_00_01_00>(a, b));
            let high = values!(_mm512_shuffle_ps::<0b11_10_11_10>(a, b));
            twos[i] = self.fold::<GREATEST>(low, high);
        }
        let low = values!(_mm512_shuffle_ps::<0b10_00_10_00>(twos[0], twos[1]));
        let high = values!(_mm512_shuffle_ps::<0b11_01_11_01>(twos[0], twos[1]));
        self.fold::<GREATEST>(low, high)
    }

    #[inline(always)]
    fn fold<const GREATEST: bool>(self, a: __m512, b: __m512) -> __m512 {
        if GREATEST { self.max(a, b) } else { self.add(a, b) }
    }
}

impl Dots for Fours {
    type Quads = Self;

    #[inline(always)]
    fn quads(self) -> Option<Self> {
        Some(self)
    }

    #[inline(always)]
    fn nibbles<const T: usize>(self, codes: &[u8; 128], x: [&[u8; 32]; T]) -> [__m256; T] {
        let mut sums = [values!(_mm512_setzero_si512()); T];
        for (pair, bytes) in codes.as_chunks::<64>().0.iter().enumerate() {
            let both = memory!(_mm512_loadu_si512(bytes.as_ptr().cast()));
            let mask = values!(_mm512_set1_epi8(15));
            let low = values!(_mm512_and_si512(both, mask));
            let high = values!(_mm512_and_si512(_mm512_srli_epi16::<4>(both), mask));
            for (sum, x) in sums.iter_mut().zip(x) {
                let x = memory!(_mm256_loadu_si256(x.as_ptr().cast()));
                let first = 4 * pair as i32;
                *sum = values!(_mm512_dpbusd_epi32(*sum, low, self.broadcast(x, first, first + 2)));
                *sum = values!(_mm512_dpbusd_epi32(*sum, high, self.broadcast(x, first + 1, first + 3)));
            }
        }
        sums.map(|sum| self.fold(sum))
    }

    #[inline(always)]
    fn unsigned<const T: usize>(self, codes: &[u8; 128], x: [&[u8; 16]; T]) -> [__m256; T] {
        let mut sums = [values!(_mm512_setzero_si512()); T];
        for (pair, bytes) in codes.as_chunks::<64>().0.iter().enumerate() {
            let codes = memory!(_mm512_loadu_si512(bytes.as_ptr().cast()));
            for (sum, x) in sums.iter_mut().zip(x) {
                *sum = values!(_mm512_dpbusd_epi32(*sum, codes, self.broadcast_half(x, pair)));
            }
        }
        sums.map(|sum| self.fold(sum))
    }

    #[inline(always)]
    fn narrow<const T: usize>(self, codes: &[u8; 128], x: [&[u8; 16]; T]) -> [__m256; T] {
        self.signed(codes, x)
    }

    /// Moves the sign of a code to its activation.
    #[inline(always)]
    fn signed<const T: usize>(self, codes: &[u8; 128], x: [&[u8; 16]; T]) -> [__m256; T] {
        let mut sums = [values!(_mm512_setzero_si512()); T];
        for (pair, bytes) in codes.as_chunks::<64>().0.iter().enumerate() {
            let codes = memory!(_mm512_loadu_si512(bytes.as_ptr().cast()));
            let (magnitudes, negative) = values!((_mm512_abs_epi8(codes), _mm512_movepi8_mask(codes)));
            for (sum, x) in sums.iter_mut().zip(x) {
                let x = self.broadcast_half(x, pair);
                let x = values!(_mm512_mask_sub_epi8(x, negative, _mm512_setzero_si512(), x));
                *sum = values!(_mm512_dpbusd_epi32(*sum, magnitudes, x));
            }
        }
        sums.map(|sum| self.fold(sum))
    }
}

impl Quads for Fours {
    type Q = __m512i;
    type W = __m512;

    #[inline(always)]
    fn join(self, first: &[u8; 32], second: &[u8; 32]) -> __m512i {
        let first = memory!(_mm256_loadu_si256(first.as_ptr().cast()));
        let second = memory!(_mm256_loadu_si256(second.as_ptr().cast()));
        values!(_mm512_inserti64x4::<1>(_mm512_castsi256_si512(first), second))
    }

    #[inline(always)]
    fn low(self, bytes: __m512i) -> __m512i {
        values!(_mm512_and_si512(bytes, _mm512_set1_epi8(15)))
    }

    #[inline(always)]
    fn high(self, bytes: __m512i) -> __m512i {
        values!(_mm512_and_si512(_mm512_srli_epi16::<4>(bytes), _mm512_set1_epi8(15)))
    }

    #[inline(always)]
    fn unsigned(self, bytes: __m512i) -> __m512i {
        values!(_mm512_xor_si512(bytes, _mm512_set1_epi8(-128)))
    }

    #[inline(always)]
    fn splat(self, integer: i32) -> __m512i {
        values!(_mm512_set1_epi32(integer))
    }

    #[inline(always)]
    fn add(self, sums: __m512i, codes: __m512i, x: [u8; 4]) -> __m512i {
        values!(_mm512_dpbusd_epi32(sums, codes, _mm512_set1_epi32(i32::from_le_bytes(x))))
    }

    #[inline(always)]
    fn floats(self, sums: __m512i) -> __m512 {
        values!(_mm512_cvtepi32_ps(sums))
    }
}

impl Fours {
    /// Broadcasts two of eight groups of four activations to every row: group `low` in the lower
    /// half, group `high` in the upper.
    #[inline(always)]
    fn broadcast(self, x: __m256i, low: i32, high: i32) -> __m512i {
        let indices = values!(_mm512_inserti64x4::<1>(_mm512_set1_epi32(low), _mm256_set1_epi32(high)));
        values!(_mm512_permutexvar_epi32(indices, _mm512_castsi256_si512(x)))
    }

    /// Broadcasts the groups 2 * `pair` and 2 * `pair` + 1 of four, as `broadcast` does.
    #[inline(always)]
    fn broadcast_half(self, x: &[u8; 16], pair: usize) -> __m512i {
        let x = memory!(_mm_loadu_si128(x.as_ptr().cast()));
        let first = 2 * pair as i32;
        self.broadcast(values!(_mm256_castsi128_si256(x)), first, first + 1)
    }

    /// Adds the lower and the upper half.
    #[inline(always)]
    fn fold(self, sums: __m512i) -> __m256 {
        let (low, high) = values!((_mm512_castsi512_si256(sums), _mm512_extracti64x4_epi64::<1>(sums)));
        values!(_mm256_cvtepi32_ps(_mm256_add_epi32(low, high)))
    }
}

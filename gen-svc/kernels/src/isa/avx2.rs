//! AVX2 with FMA and F16C. Products of bytes are added in pairs to 16 bits, and the pairs to 32
//! bits before they can overflow. Sixteen lanes need two registers.

use std::arch::x86_64::*;
use std::array::from_fn;

use super::operations::{self, Arithmetic, Isa, Kernel, NoQuads, Wide};
use super::sizes::{LANES, Pair, WIDE};
use super::x86::{Dots, X86, bits, load_four, memory, values};

pub(super) type Avx2 = X86<Pairs>;

/// Integer products by `vpmaddubsw`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Pairs(());

pub(super) fn detect() -> Option<Avx2> {
    let available =
        is_x86_feature_detected!("avx2") && is_x86_feature_detected!("fma") && is_x86_feature_detected!("f16c");
    // SAFETY: the processor has the instructions, as just detected.
    available.then(|| unsafe { X86::new(Pairs(())) })
}

pub(super) fn run<K: Kernel>(isa: Avx2, kernel: K) -> K::Output {
    #[target_feature(enable = "avx2,fma,f16c")]
    fn compiled<I: Isa, K: Kernel>(isa: I, kernel: K) -> K::Output {
        kernel.run(isa)
    }
    // SAFETY: `isa` proves that the instructions exist.
    unsafe { compiled(isa, kernel) }
}

impl Arithmetic<[__m256; 2]> for Avx2 {
    #[inline(always)]
    fn splat(self, value: f32) -> [__m256; 2] {
        [self.splat(value); 2]
    }

    #[inline(always)]
    fn add(self, a: [__m256; 2], b: [__m256; 2]) -> [__m256; 2] {
        from_fn(|half| self.add(a[half], b[half]))
    }

    #[inline(always)]
    fn sub(self, a: [__m256; 2], b: [__m256; 2]) -> [__m256; 2] {
        from_fn(|half| self.sub(a[half], b[half]))
    }

    #[inline(always)]
    fn mul(self, a: [__m256; 2], b: [__m256; 2]) -> [__m256; 2] {
        from_fn(|half| self.mul(a[half], b[half]))
    }

    #[inline(always)]
    fn div(self, a: [__m256; 2], b: [__m256; 2]) -> [__m256; 2] {
        from_fn(|half| self.div(a[half], b[half]))
    }

    #[inline(always)]
    fn fma(self, a: [__m256; 2], b: [__m256; 2], c: [__m256; 2]) -> [__m256; 2] {
        from_fn(|half| self.fma(a[half], b[half], c[half]))
    }

    #[inline(always)]
    fn max(self, a: [__m256; 2], b: [__m256; 2]) -> [__m256; 2] {
        from_fn(|half| self.max(a[half], b[half]))
    }

    #[inline(always)]
    fn min(self, a: [__m256; 2], b: [__m256; 2]) -> [__m256; 2] {
        from_fn(|half| self.min(a[half], b[half]))
    }

    #[inline(always)]
    fn abs(self, a: [__m256; 2]) -> [__m256; 2] {
        from_fn(|half| self.abs(a[half]))
    }

    #[inline(always)]
    fn select_less(self, a: [__m256; 2], b: [__m256; 2], yes: [__m256; 2], no: [__m256; 2]) -> [__m256; 2] {
        from_fn(|half| self.select_less(a[half], b[half], yes[half], no[half]))
    }

    #[inline(always)]
    fn round(self, a: [__m256; 2]) -> [__m256; 2] {
        from_fn(|half| self.round(a[half]))
    }

    #[inline(always)]
    fn exp2(self, a: [__m256; 2]) -> [__m256; 2] {
        from_fn(|half| self.exp2(a[half]))
    }
}

impl Wide for Avx2 {
    type F = __m256;
    type W = [__m256; 2];
    const REGISTERS: usize = 16;

    #[inline(always)]
    fn wide_load(self, from: &[f32; WIDE]) -> Self::W {
        from_fn(|half| memory!(_mm256_loadu_ps(from.as_chunks::<LANES>().0[half].as_ptr())))
    }

    #[inline(always)]
    fn wide_store(self, lanes: Self::W, to: &mut [f32; WIDE]) {
        for (lanes, to) in lanes.into_iter().zip(to.as_chunks_mut::<LANES>().0) {
            memory!(_mm256_storeu_ps(to.as_mut_ptr(), lanes));
        }
    }

    #[inline(always)]
    fn wide_load_f16(self, from: &[u16; WIDE]) -> Self::W {
        from_fn(|half| {
            let from = &from.as_chunks::<LANES>().0[half];
            memory!(_mm256_cvtph_ps(_mm_loadu_si128(from.as_ptr().cast())))
        })
    }

    #[inline(always)]
    fn wide_load_i32(self, from: &[i32; WIDE]) -> Self::W {
        from_fn(|half| {
            let from = &from.as_chunks::<LANES>().0[half];
            memory!(_mm256_cvtepi32_ps(_mm256_loadu_si256(from.as_ptr().cast())))
        })
    }

    #[inline(always)]
    fn wide_splat_pair(self, pair: Pair) -> [Self::W; 2] {
        let pairs = values!(_mm256_set1_epi32(bits(pair)));
        let second = values!(_mm256_and_si256(pairs, _mm256_set1_epi32(!0xffff)));
        let first = values!(_mm256_castsi256_ps(_mm256_slli_epi32::<16>(pairs)));
        [[first; 2], [values!(_mm256_castsi256_ps(second)); 2]]
    }

    #[inline(always)]
    fn join(self, first: __m256, second: __m256) -> Self::W {
        [first, second]
    }

    #[inline(always)]
    fn split(self, lanes: Self::W) -> [__m256; 2] {
        lanes
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

impl Dots for Pairs {
    type Quads = NoQuads<[__m256; 2]>;

    #[inline(always)]
    fn quads(self) -> Option<Self::Quads> {
        None
    }

    /// 8 additions of two products each, at most 8 x 2 x 15 x 127 = 30,480, fit 16 bits.
    #[inline(always)]
    fn nibbles<const T: usize>(self, codes: &[u8; 128], x: [&[u8; 32]; T]) -> [__m256; T] {
        let mut sums = [values!(_mm256_setzero_si256()); T];
        for (run, bytes) in codes.as_chunks::<32>().0.iter().enumerate() {
            let both = memory!(_mm256_loadu_si256(bytes.as_ptr().cast()));
            let mask = values!(_mm256_set1_epi8(15));
            let low = values!(_mm256_and_si256(both, mask));
            let high = values!(_mm256_and_si256(_mm256_srli_epi16::<4>(both), mask));
            for (sum, x) in sums.iter_mut().zip(x) {
                *sum = self.add_pairs(*sum, low, self.broadcast(x, 2 * run));
                *sum = self.add_pairs(*sum, high, self.broadcast(x, 2 * run + 1));
            }
        }
        sums.map(|sum| self.widen(sum))
    }

    /// 4 additions of two products each, at most 4 x 2 x 31 x 127 = 31,496, fit 16 bits.
    #[inline(always)]
    fn unsigned<const T: usize>(self, codes: &[u8; 128], x: [&[u8; 16]; T]) -> [__m256; T] {
        let mut sums = [values!(_mm256_setzero_si256()); T];
        for (run, bytes) in codes.as_chunks::<32>().0.iter().enumerate() {
            let codes = memory!(_mm256_loadu_si256(bytes.as_ptr().cast()));
            for (sum, x) in sums.iter_mut().zip(x) {
                *sum = self.add_pairs(*sum, codes, self.broadcast(x, run));
            }
        }
        sums.map(|sum| self.widen(sum))
    }

    /// Moves the sign of a code to its activation. 4 additions, at most 4 x 2 x 32 x 127 = 32,512,
    /// fit 16 bits.
    #[inline(always)]
    fn narrow<const T: usize>(self, codes: &[u8; 128], x: [&[u8; 16]; T]) -> [__m256; T] {
        let mut sums = [values!(_mm256_setzero_si256()); T];
        for (run, bytes) in codes.as_chunks::<32>().0.iter().enumerate() {
            let codes = memory!(_mm256_loadu_si256(bytes.as_ptr().cast()));
            let magnitudes = values!(_mm256_abs_epi8(codes));
            for (sum, x) in sums.iter_mut().zip(x) {
                let x = values!(_mm256_sign_epi8(self.broadcast(x, run), codes));
                *sum = self.add_pairs(*sum, magnitudes, x);
            }
        }
        sums.map(|sum| self.widen(sum))
    }

    /// Moves the sign as `narrow` does. One pair, at most 2 x 128 x 127 = 32,512, already fills 16
    /// bits.
    #[inline(always)]
    fn signed<const T: usize>(self, codes: &[u8; 128], x: [&[u8; 16]; T]) -> [__m256; T] {
        let mut sums = [values!(_mm256_setzero_si256()); T];
        for (run, bytes) in codes.as_chunks::<32>().0.iter().enumerate() {
            let codes = memory!(_mm256_loadu_si256(bytes.as_ptr().cast()));
            let magnitudes = values!(_mm256_abs_epi8(codes));
            for (sum, x) in sums.iter_mut().zip(x) {
                let x = values!(_mm256_sign_epi8(self.broadcast(x, run), codes));
                let pairs = values!(_mm256_maddubs_epi16(magnitudes, x));
                *sum = values!(_mm256_add_epi32(*sum, _mm256_madd_epi16(pairs, _mm256_set1_epi16(1))));
            }
        }
        sums.map(|sum| values!(_mm256_cvtepi32_ps(sum)))
    }
}

impl Pairs {
    /// Broadcasts four activations to every row.
    #[inline(always)]
    fn broadcast<const K: usize>(self, x: &[u8; K], index: usize) -> __m256i {
        values!(_mm256_set1_epi32(load_four(x, index)))
    }

    /// Adds products of unsigned and signed bytes, in pairs, to 16-bit sums.
    #[inline(always)]
    fn add_pairs(self, sums: __m256i, unsigned: __m256i, signed: __m256i) -> __m256i {
        values!(_mm256_add_epi16(sums, _mm256_maddubs_epi16(unsigned, signed)))
    }

    /// Adds adjacent 16-bit sums.
    #[inline(always)]
    fn widen(self, sums: __m256i) -> __m256 {
        values!(_mm256_cvtepi32_ps(_mm256_madd_epi16(sums, _mm256_set1_epi16(1))))
    }
}

//! AVX-512 with BF16: one instruction adds two products of bf16 numbers in each lane. All other
//! operations are those of AVX-512.

use std::arch::x86_64::*;
use std::array::from_fn;
use std::mem::transmute;
use std::sync::OnceLock;

use super::avx512::{self, Avx512};
use super::operations::Wide;
use super::pairs::{Imitated, PairKernel, Pairs};
use super::sizes::{LANES, Pair, WIDE};
use super::x86::{bits, memory, values};

/// Proof that the processor has the instruction, and that it computes what its imitation does.
#[derive(Debug, Clone, Copy)]
pub(super) struct Bf16(Avx512);

/// Returns `None` also if the instruction computes something else on this processor.
pub(super) fn detect(isa: Avx512) -> Option<Bf16> {
    static DETECTED: OnceLock<bool> = OnceLock::new();
    let is_usable = || is_x86_feature_detected!("avx512bf16") && equals_imitation(Bf16(isa));
    DETECTED.get_or_init(is_usable).then_some(Bf16(isa))
}

pub(super) fn run<K: PairKernel>(pairs: Bf16, kernel: K) {
    #[target_feature(enable = "avx2,fma,f16c,avx512f,avx512bw,avx512vl,avx512vnni,avx512bf16")]
    fn compiled<P: Pairs, K: PairKernel>(pairs: P, kernel: K) {
        kernel.run(pairs);
    }
    // SAFETY: `pairs` proves that the instructions exist.
    unsafe { compiled(pairs, kernel) }
}

impl Pairs for Bf16 {
    type Isa = Avx512;
    type Weights = __m512i;
    type X = __m512i;
    const IS_NATIVE: bool = true;

    #[inline(always)]
    fn isa(self) -> Avx512 {
        self.0
    }

    #[inline(always)]
    fn weights(self, panels: [&[Pair; LANES]; 2]) -> __m512i {
        let first = memory!(_mm256_loadu_si256(panels[0].as_ptr().cast()));
        let second = memory!(_mm256_loadu_si256(panels[1].as_ptr().cast()));
        values!(_mm512_inserti64x4::<1>(_mm512_castsi256_si512(first), second))
    }

    #[inline(always)]
    fn splat(self, x: Pair) -> __m512i {
        values!(_mm512_set1_epi32(bits(x)))
    }

    #[inline(always)]
    fn add(self, sums: __m512, weights: __m512i, x: __m512i) -> __m512 {
        // SAFETY: both types are 512 bits without invalid patterns, and `self` proves that the
        // instruction exists.
        unsafe { _mm512_dpbf16_ps(sums, transmute::<__m512i, __m512bh>(weights), transmute::<__m512i, __m512bh>(x)) }
    }

    #[inline(always)]
    fn add_tame(self, sums: __m512, weights: __m512i, x: __m512i) -> __m512 {
        self.add(sums, weights, x)
    }

    #[inline(always)]
    fn round(self, numbers: [__m512; 2], to: &mut [Pair; WIDE]) -> __m512i {
        // SAFETY: both types are 512 bits without invalid patterns, and `self` proves that the
        // instruction exists.
        let pairs = unsafe { transmute::<__m512bh, __m512i>(_mm512_cvtne2ps_pbh(numbers[1], numbers[0])) };
        memory!(_mm512_storeu_si512(to.as_mut_ptr().cast(), pairs));
        pairs
    }
}

/// Returns true if the instruction has the results of the imitation for some hundred fixed numbers.
fn equals_imitation(pairs: Bf16) -> bool {
    // Results next to the smallest normal number, where rounding decides whether they are zero.
    let small = |lane: usize| [0x1900 + 0x20 * lane as u16, 0];
    let swap = |[first, second]: Pair| [second, first];
    let sums = [f32::MIN_POSITIVE; WIDE];
    let edges = [
        Probe { sums, weights: from_fn(small), x: [0x9a00; 2] },
        Probe { sums, weights: from_fn(|lane| swap(small(lane))), x: [0x9a00; 2] },
    ];
    let mut random = Random(0x9e37_79b9_7f4a_7c15);
    edges.into_iter().chain((0..40).map(|index| Probe::new(index, &mut random))).all(|probe| probe.is_exact(pairs))
}

/// Sixteen sums, their pairs of weights, and the pair that multiplies all of these.
struct Probe {
    sums: [f32; WIDE],
    weights: [Pair; WIDE],
    x: Pair,
}

impl Probe {
    fn new(index: usize, random: &mut Random) -> Self {
        let sum = |random: &mut Random| {
            // Sums are about as large as products. They are never denormal.
            let exponent = [127, 10, 245, 1, 100][index % 5] + random.bits() % [8, 8, 8, 255, 155][index % 5];
            f32::from_bits(random.bits() & 0x807f_ffff | exponent << 23)
        };
        let sums = from_fn(|_| sum(random));
        let weights = from_fn(|_| [number(index, random), number(index, random)]);
        Self { sums, weights, x: [number(index, random), number(index, random)] }
    }

    /// Returns true if the instruction and its imitation compute the same in all lanes.
    fn is_exact(&self, pairs: Bf16) -> bool {
        let (mut found, mut expected) = ([0.0; WIDE], [0.0; WIDE]);
        run(pairs, Add { probe: self, out: &mut found });
        avx512::run(pairs.0, Imitated(Add { probe: self, out: &mut expected }));
        let same = |(a, b): (&f32, &f32)| a.to_bits() == b.to_bits() || a.is_nan() && b.is_nan();
        found.iter().zip(&expected).all(same)
    }
}

/// Adds the products of a probe.
struct Add<'a> {
    probe: &'a Probe,
    out: &'a mut [f32; WIDE],
}

impl PairKernel for Add<'_> {
    #[inline(always)]
    fn run<P: Pairs>(self, pairs: P) {
        let isa = pairs.isa();
        let panels = self.probe.weights.as_chunks().0;
        let weights = pairs.weights([&panels[0], &panels[1]]);
        let sums = pairs.add(isa.wide_load(&self.probe.sums), weights, pairs.splat(self.probe.x));
        isa.wide_store(sums, self.out);
    }
}

/// Returns a number of the probe's kind: about one, with a tiny square, with a huge square, with any
/// bits, or special.
fn number(index: usize, random: &mut Random) -> u16 {
    const SPECIAL: [u16; 12] = [0, 0x8000, 1, 0x807f, 0x0080, 0x3f80, 0xbf81, 0x7f7f, 0x7f80, 0xff80, 0x7fc0, 0x7f81];
    let bits = random.bits();
    let exponent = match index % 5 {
        0 => 124 + (bits >> 16) % 6,
        1 => 62 + (bits >> 16) % 12,
        2 => 184 + (bits >> 16) % 10,
        3 => return bits as u16,
        _ => return SPECIAL[bits as usize % SPECIAL.len()],
    };
    (bits & 0x807f | exponent << 7) as u16
}

/// A xorshift generator. Source: Marsaglia, "Xorshift RNGs" (2003).
struct Random(u64);

impl Random {
    fn bits(&mut self) -> u32 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 32) as u32
    }
}

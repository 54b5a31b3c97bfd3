//! The CPU kernels, at every level of this processor, against plain definitions in f64.

mod attention;
mod blocks;
mod matmul;
mod pack;
mod pool;
mod rows;
mod vocab;

use std::sync::LazyLock;

use tandem_kernels::{Kernels, Level};

/// One set of kernels per level of this processor, each with a team of three.
static KERNELS: LazyLock<Vec<Kernels>> = LazyLock::new(|| {
    let levels = Level::all_here();
    if Level::named("avx512").is_none() {
        eprintln!("AVX-512 VNNI is not on this processor: its products are not run");
    }
    levels.into_iter().map(|level| Kernels::new(3, level)).collect()
});

/// A generator of numbers that are the same in every run (splitmix64).
struct Random(u64);

impl Random {
    fn bits(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ self.0 >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ mixed >> 31
    }

    /// Within -1..1.
    fn float(&mut self) -> f32 {
        (self.bits() >> 40) as f32 / (1 << 23) as f32 - 1.0
    }

    fn floats(&mut self, count: usize) -> Vec<f32> {
        (0..count).map(|_| self.float()).collect()
    }

    fn bytes(&mut self, count: usize) -> Vec<u8> {
        (0..count).map(|_| self.bits() as u8).collect()
    }
}

/// Every number's bits, with one pattern for all NaN.
fn bits(values: &[f32]) -> Vec<u32> {
    values.iter().map(|value| if value.is_nan() { u32::MAX } else { value.to_bits() }).collect()
}

/// The first number of each and their distance, unless all distances are within `tolerance(i)`.
#[track_caller]
fn check_close(found: &[f32], expected: &[f64], what: &str, tolerance: impl Fn(usize) -> f64) {
    assert_eq!(found.len(), expected.len(), "{what}: length");
    for (i, (found, expected)) in found.iter().zip(expected).enumerate() {
        let distance = (f64::from(*found) - expected).abs();
        assert!(distance <= tolerance(i), "{what}: number {i} is {found}, expected {expected}, distance {distance:e}");
    }
}

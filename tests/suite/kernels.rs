//! The CPU kernels, at every level of this processor, against plain definitions in f64.

mod attention;
mod blocks;
mod matmul;
mod pack;
mod pool;
mod rows;
mod vocab;

use std::sync::LazyLock;

use tandem_kernels::{IsaLevel, Kernels};
use tandem_tests::Random;

/// One set of kernels per level of this processor, each with a team of three.
static KERNELS: LazyLock<Vec<Kernels>> = LazyLock::new(|| {
    let levels = IsaLevel::available();
    for name in ["avx512", "amx"].into_iter().filter(|name| IsaLevel::named(name).is_none()) {
        eprintln!("{name} is not on this processor: its products are not run");
    }
    levels.into_iter().map(|level| Kernels::new(3, level)).collect()
});

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

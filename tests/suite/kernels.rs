//! The CPU kernels at every ISA level of this processor, compared with simple reference code in
//! f64.

mod attention;
mod blocks;
mod matmul;
mod pack;
mod pairs;
mod pool;
mod recurrence;
mod rows;
mod states;
mod vocab;

use std::sync::LazyLock;

use tandem_kernels::{IsaLevel, Kernels};
use tandem_tests::Random;

/// One set of kernels per ISA level of this processor, each with a team of three threads.
static KERNELS: LazyLock<Vec<Kernels>> = LazyLock::new(|| {
    let levels = IsaLevel::available();
    for name in ["avx512", "amx"].into_iter().filter(|name| IsaLevel::named(name).is_none()) {
        eprintln!("this processor lacks {name}: its kernels are not tested");
    }
    levels.into_iter().map(|level| Kernels::new(3, level)).collect()
});

/// Returns the bits of every number, with one pattern for all NaN.
fn bits(values: &[f32]) -> Vec<u32> {
    values.iter().map(|value| if value.is_nan() { u32::MAX } else { value.to_bits() }).collect()
}

/// Fails with the first pair of numbers whose distance exceeds `tolerance(i)`.
#[track_caller]
fn check_close(found: &[f32], expected: &[f64], label: &str, tolerance: impl Fn(usize) -> f64) {
    assert_eq!(found.len(), expected.len(), "{label}: length");
    for (i, (found, expected)) in found.iter().zip(expected).enumerate() {
        let distance = (f64::from(*found) - expected).abs();
        assert!(distance <= tolerance(i), "{label}: number {i} is {found}, expected {expected}, distance {distance:e}");
    }
}

//! Kernels that process one row of logits.

use super::{Random, bits, check_close};
use tandem_kernels::{IsaLevel, vocab};

/// Lengths shorter than a vector, of one vector, longer than four vectors, and of a whole
/// vocabulary.
const LENGTHS: [usize; 6] = [1, 7, 8, 33, 1_000, 49_152];

fn logits(length: usize) -> Vec<f32> {
    Random(length as u64).floats(length).iter().map(|value| value * 20.0).collect()
}

#[test]
fn argmax_returns_the_first_maximum() {
    for level in IsaLevel::available() {
        for length in LENGTHS {
            let mut row = logits(length);
            let best = length * 2 / 3;
            row[best] = 21.0;
            row[length - 1] = 21.0;
            assert_eq!((vocab::max(level, &row), vocab::argmax(level, &row)), (21.0, best));
        }
        assert_eq!(vocab::argmax(level, &[f32::NAN, 1.0, 2.0, f32::NEG_INFINITY]), 2);
        assert_eq!(vocab::argmax(level, &[f32::NAN; 9]), 0);
        assert_eq!(vocab::argmax(level, &[]), 0);
        assert_eq!(vocab::max(level, &[f32::NEG_INFINITY; 3]), f32::NEG_INFINITY);
    }
}

#[test]
fn log_sum_exp_matches_its_definition() {
    for length in LENGTHS {
        let row = logits(length);
        let expected = row.iter().map(|x| f64::from(*x).exp()).sum::<f64>().ln();
        let found: Vec<f32> = IsaLevel::available().iter().map(|level| vocab::log_sum_exp(*level, &row)).collect();
        for found in &found {
            check_close(&[*found], &[expected], "log-sum-exp", |_| 2e-6 * expected.abs() + 1e-6);
            assert_eq!(found.to_bits(), vocab::log_sum_exp(IsaLevel::available()[0], &row).to_bits());
        }
    }
    let level = IsaLevel::detect();
    assert_eq!(vocab::log_sum_exp(level, &[f32::NEG_INFINITY; 4]), f32::NEG_INFINITY);
    assert_eq!(vocab::log_sum_exp(level, &[f32::NEG_INFINITY, 3.0]), 3.0);
}

#[test]
fn exponentials_are_accurate_and_zero_is_exact() {
    let row: Vec<f32> = (0..3_001).map(|i| -(i as f32) * 0.03).chain([f32::NEG_INFINITY, f32::NAN]).collect();
    let mut first = Vec::new();
    for level in IsaLevel::available() {
        let mut out = row.clone();
        vocab::exp(level, &mut out, 0.0, 1.0);
        assert!(vocab::total(&out).is_nan());
        assert!(out[3_002].is_nan());
        assert_eq!(out[3_001], 0.0);
        let expected: Vec<f64> = row[..3_001].iter().map(|x| f64::from(*x).exp()).collect();
        check_close(&out[..3_001], &expected, "exp", |i| expected[i] * 2.4e-7 + 2e-38);
        out[..100].copy_from_slice(&row[..100]);
        vocab::exp(level, &mut out[..100], 1.0, 0.5);
        let expected: Vec<f64> = row[..100].iter().map(|x| ((f64::from(*x) - 1.0) * 0.5).exp()).collect();
        check_close(&out[..100], &expected, "exp", |i| expected[i] * 4e-7);
        first = if first.is_empty() { bits(&out) } else { first };
        assert_eq!(bits(&out), first, "ISA levels differ");
    }
}

/// Sums of 32-bit floats would differ by the weight of several tokens.
#[test]
fn sum_of_a_vocabulary_is_exact_to_a_small_part_of_one_number() {
    for length in LENGTHS {
        let row: Vec<f32> = (0..length).map(|i| 0.7 + (i % 1_000) as f32 / 3_000.0).collect();
        let expected: f64 = row.iter().map(|x| f64::from(*x)).sum();
        assert!((vocab::total(&row) - expected).abs() < 1e-6, "{length}");
    }
    assert_eq!(vocab::total(&[]), 0.0);
}

#[test]
fn candidates_are_collected_in_order() {
    for level in IsaLevel::available() {
        for length in LENGTHS {
            let row = logits(length);
            let mut found = vec![(9, 9.0)];
            vocab::at_least(level, &row, 19.0, &mut found);
            let expected = (0..).zip(row.iter().copied()).filter(|(_, value)| *value >= 19.0);
            assert_eq!(found[1..], expected.collect::<Vec<_>>());
        }
    }
}

#[test]
fn kth_largest_matches_the_sorted_row() {
    for level in IsaLevel::available() {
        for length in LENGTHS {
            let row = logits(length);
            let mut sorted = row.clone();
            sorted.sort_unstable_by(|a, b| b.total_cmp(a));
            for k in [1, 2, 5, 40, 64, 65, 1_000, length] {
                let expected = if k == 0 || k > length { f32::NEG_INFINITY } else { sorted[k - 1] };
                assert_eq!(vocab::kth(level, &row, k), expected, "{k} of {length}");
            }
        }
        assert_eq!(vocab::kth(level, &[1.0, f32::NAN, 2.0], 2), 1.0);
    }
}

#[test]
fn masked_logits_become_negative_infinity() {
    for (length, words) in [(1, 1), (32, 1), (70, 3), (70, 2), (70, 0), (100, 9)] {
        let mut random = Random(length as u64);
        let allowed: Vec<u32> = (0..words).map(|i| [u32::MAX, 0, random.bits() as u32][i % 3]).collect();
        let mut row = vec![1.0; length];
        vocab::mask(&mut row, &allowed);
        for (i, value) in row.into_iter().enumerate() {
            let bit = allowed.get(i / 32).is_some_and(|word| word >> (i % 32) & 1 == 1);
            assert_eq!(value, if bit { 1.0 } else { f32::NEG_INFINITY });
        }
    }
}

#[test]
fn logits_are_scaled_and_capped() {
    let row: Vec<f32> = (-500..=500).map(|i| i as f32 * 0.31).chain([1e-6, -0.01, f32::INFINITY]).collect();
    let expected: Vec<f64> = row.iter().map(|x| 30.0 * (f64::from(*x) / 30.0).tanh()).collect();
    let mut first = Vec::new();
    for level in IsaLevel::available() {
        let mut capped = row.clone();
        vocab::soft_cap(level, &mut capped, 30.0);
        check_close(&capped, &expected, "soft cap", |i| expected[i].abs() * 4e-7);
        first = if first.is_empty() { bits(&capped) } else { first };
        assert_eq!(bits(&capped), first, "ISA levels differ");
        let mut scaled = row.clone();
        vocab::scale(level, &mut scaled, 0.125);
        assert_eq!(bits(&scaled), bits(&row.iter().map(|x| x * 0.125).collect::<Vec<_>>()));
    }
}

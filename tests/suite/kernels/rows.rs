//! Norms, rotations and lookups of rows.

use super::blocks::{float_matrix, random_matrix, values};
use super::{KERNELS, Random, bits, check_close};
use tandem_kernels::Target;
use tandem_kernels::{Angles, BlockFormat, Heads, Norm};

/// x / sqrt(mean(x²) + epsilon) * (offset + weight), in f64.
fn norm(x: &[f32], norm: Norm<'_>) -> Vec<f64> {
    let columns = norm.weight.len();
    let mut out = Vec::new();
    for row in x.chunks_exact(columns) {
        let mean = row.iter().map(|x| f64::from(*x).powi(2)).sum::<f64>() / columns as f64;
        let inverse = 1.0 / (mean + f64::from(norm.epsilon)).sqrt();
        let weight = |i: usize| f64::from(norm.offset) + f64::from(norm.weight[i]);
        out.extend(row.iter().enumerate().map(|(i, x)| f64::from(*x) * inverse * weight(i)));
    }
    out
}

#[test]
fn rows_are_normalized() {
    for (rows, columns) in [(1, 1), (3, 8), (2, 37), (5, 576), (70, 1_000)] {
        let mut random = Random(columns as u64);
        let (x, weight) = (random.floats(rows * columns), random.floats(columns));
        for (epsilon, offset) in [(1e-6, 0.0), (0.5, 1.0)] {
            let rule = Norm { weight: &weight, epsilon, offset };
            let expected = norm(&x, rule);
            let mut first = Vec::new();
            for kernels in KERNELS.iter() {
                let mut out = vec![f32::NAN; x.len()];
                kernels.norm(&x, rule, &mut out).expect("right shapes");
                check_close(&out, &expected, "norm", |i| expected[i].abs() * 1e-6);
                let mut added = x.clone();
                kernels.add_norm(&x, rule, 0.5, &mut added).expect("right shapes");
                let sum: Vec<f32> = x.iter().zip(&out).map(|(x, y)| x + y * 0.5).collect();
                assert_eq!(bits(&added), bits(&sum));
                first = if first.is_empty() { bits(&out) } else { first };
                assert_eq!(bits(&out), first, "ISA levels differ");
            }
        }
    }
}

#[test]
fn a_non_finite_row_affects_no_other_row() {
    let weight = [1.0; 20];
    let rule = Norm { weight: &weight, epsilon: 1e-5, offset: 0.0 };
    let mut x = vec![0.5; 60];
    x[25] = f32::INFINITY;
    for kernels in KERNELS.iter() {
        let mut out = vec![0.0; 60];
        kernels.norm(&x, rule, &mut out).expect("right shapes");
        assert!(out[..20].iter().chain(&out[40..]).all(|value| value.is_finite()));
        assert!(out[25].is_nan());
    }
}

#[test]
fn norm_calls_with_wrong_shapes_are_rejected() {
    let kernels = &KERNELS[0];
    let rule = Norm { weight: &[1.0; 4], epsilon: 1e-5, offset: 0.0 };
    assert!(kernels.norm(&[0.0; 7], rule, &mut [0.0; 7]).is_err());
    assert!(kernels.norm(&[0.0; 8], rule, &mut [0.0; 7]).is_err());
    assert!(kernels.norm(&[0.0; 8], Norm { weight: &[], ..rule }, &mut [0.0; 8]).is_err());
}

/// Rotates elements i and i + pairs by position * frequency i.
fn rotate(head: &[f32], frequencies: &[f32], factor: f32, position: usize) -> Vec<f64> {
    let mut out: Vec<f64> = head.iter().map(|x| f64::from(*x)).collect();
    for (i, frequency) in frequencies.iter().enumerate() {
        let angle = f64::from(position as f32 * frequency);
        let (sine, cosine) = (angle.sin() * f64::from(factor), angle.cos() * f64::from(factor));
        let (x, y) = (out[i], out[i + frequencies.len()]);
        out[i] = x * cosine - y * sine;
        out[i + frequencies.len()] = y * cosine + x * sine;
    }
    out
}

#[test]
fn heads_are_rotated() {
    for (head_dim, pairs, factor) in [(64, 32, 1.0), (96, 48, 1.19), (80, 10, 1.0), (24, 9, 1.0)] {
        let frequencies: Vec<f32> = (0..pairs).map(|i| 10_000_f32.powf(-(i as f32) / pairs as f32)).collect();
        let positions = [0, 1, 17, 4_000, 100_000];
        let x = Random(2).floats(5 * 3 * head_dim);
        let mut angles = Angles::default();
        angles.fill(&[1.0], 1.0, [3].into_iter());
        angles.fill(&frequencies, factor, positions.into_iter());
        let heads = x.chunks_exact(head_dim).enumerate();
        let expected: Vec<f64> =
            heads.flat_map(|(i, head)| rotate(head, &frequencies, factor, positions[i / 3])).collect();
        let mut first = Vec::new();
        for kernels in KERNELS.iter() {
            let mut out = x.clone();
            kernels.rotate(&mut out, 5, Heads { head_dim, norm: None, angles: Some(&angles) }).expect("right shapes");
            check_close(&out, &expected, "rotation", |_| 1e-6);
            first = if first.is_empty() { bits(&out) } else { first };
            assert_eq!(bits(&out), first, "ISA levels differ");
        }
    }
}

#[test]
fn each_frequency_uses_the_position_of_its_axis() {
    let frequencies = [0.9, 0.5, 0.2, 0.1];
    let axes = [0, 1, 2, 1];
    let positions = [[3, 40, 500], [7, 7, 7]];
    let x = Random(5).floats(2 * 8);
    let mut angles = Angles::default();
    angles.fill_axes(&frequencies, Some(&axes), 1.0, positions.into_iter());
    let mut found = x.clone();
    let heads = Heads { head_dim: 8, norm: None, angles: Some(&angles) };
    KERNELS[0].rotate(&mut found, 2, heads).expect("right shapes");
    for (token, position) in positions.iter().enumerate() {
        for (pair, axis) in axes.into_iter().enumerate() {
            let expected = rotate(&x[token * 8..][..8], &frequencies, 1.0, position[axis]);
            for i in [pair, pair + 4] {
                assert!((f64::from(found[token * 8 + i]) - expected[i]).abs() < 1e-6, "token {token}, number {i}");
            }
        }
    }
}

#[test]
fn heads_are_normalized_before_they_are_rotated() {
    let weight = Random(3).floats(16);
    let rule = Norm { weight: &weight, epsilon: 1e-6, offset: 1.0 };
    let mut angles = Angles::default();
    angles.fill(&[0.3; 8], 1.0, [5, 6].into_iter());
    let x = Random(4).floats(2 * 2 * 16);
    for kernels in KERNELS.iter() {
        let mut expected = vec![0.0; x.len()];
        kernels.norm(&x, rule, &mut expected).expect("right shapes");
        kernels
            .rotate(&mut expected, 2, Heads { head_dim: 16, norm: None, angles: Some(&angles) })
            .expect("right shapes");
        let mut found = x.clone();
        kernels
            .rotate(&mut found, 2, Heads { head_dim: 16, norm: Some(rule), angles: Some(&angles) })
            .expect("right shapes");
        assert_eq!(bits(&found), bits(&expected));
    }
}

#[test]
fn rotation_calls_with_wrong_shapes_are_rejected() {
    let kernels = &KERNELS[0];
    let mut angles = Angles::default();
    angles.fill(&[1.0; 5], 1.0, [0, 1].into_iter());
    let refused = |length, tokens, heads| kernels.rotate(&mut vec![0.0; length], tokens, heads).is_err();
    let heads = Heads { head_dim: 10, norm: None, angles: Some(&angles) };
    assert!(!refused(40, 2, heads));
    assert!(refused(40, 1, heads), "angles of other tokens");
    assert!(refused(40, 0, heads));
    assert!(refused(39, 2, heads));
    assert!(refused(32, 2, Heads { head_dim: 8, ..heads }), "more pairs than a head has");
    assert!(refused(40, 2, Heads { head_dim: 0, ..heads }));
    let norm = Some(Norm { weight: &[1.0; 9], epsilon: 0.0, offset: 0.0 });
    assert!(refused(40, 2, Heads { norm, ..heads }));
}

#[test]
fn embedding_rows_are_looked_up_by_id() {
    let floats = float_matrix(&KERNELS[0], &Random(5).floats(50 * 30), 30, Target::Keep);
    for table in [floats, random_matrix(&KERNELS[0], 6, BlockFormat::Q6_K, 50, 256)] {
        let (numbers, columns) = (values(&table), table.columns());
        let ids: Vec<u32> = (0..200).map(|i| i * 7 % 50).collect();
        let rows = ids.iter().flat_map(|id| &numbers[*id as usize * columns..][..columns]);
        let expected: Vec<f32> = rows.map(|value| value * 24.0).collect();
        for kernels in KERNELS.iter() {
            let mut out = vec![0.0; ids.len() * columns];
            kernels.embed(&table, &ids, 24.0, &mut out).expect("known ids");
            assert_eq!(bits(&out), bits(&expected));
            assert!(kernels.embed(&table, &[50], 1.0, &mut vec![0.0; columns]).is_err());
            assert!(kernels.embed(&table, &[49], 1.0, &mut vec![0.0; columns + 1]).is_err());
        }
    }
}

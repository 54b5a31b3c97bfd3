//! Packed weights: the values that are read back are the values that were packed.

use super::blocks::{BLOCKS, float_matrix, random_rows, values};
use super::{KERNELS, Random, bits};
use tandem_kernels::{BlockFormat, Error, Format, IsaLevel, Kernels, Matrix, Rows, Target};
use tandem_tests::error_texts;

fn pack(format: Format, columns: usize, bytes: &[u8], target: Target) -> Result<Matrix, Error> {
    KERNELS[0].pack(&Rows { format, columns, bytes }, target)
}

/// Returns the value of an f16, given its bits.
fn half(bits: u16) -> f32 {
    let (sign, exponent, fraction) = (bits >> 15, i32::from(bits >> 10 & 31), f32::from(bits & 1023));
    let magnitude = match exponent {
        0 => fraction * 2.0_f32.powi(-24),
        31 if fraction > 0.0 => f32::NAN,
        31 => f32::INFINITY,
        _ => (1.0 + fraction / 1024.0) * 2.0_f32.powi(exponent - 15),
    };
    if sign == 1 { -magnitude } else { magnitude }
}

#[test]
fn f32_weights_are_packed_bit_for_bit() {
    for (rows, columns) in [(1, 1), (3, 7), (8, 32), (21, 33)] {
        let expected = Random(5).floats(rows * columns);
        assert_eq!(values(&float_matrix(&KERNELS[0], &expected, columns, Target::Keep)), expected);
        assert_eq!(values(&float_matrix(&KERNELS[0], &expected, columns, Target::F32)), expected);
    }
}

#[test]
fn every_16_bit_float_pattern_is_read() {
    let patterns: Vec<u16> = (0..=u16::MAX).collect();
    let bytes: Vec<u8> = patterns.iter().flat_map(|pattern| pattern.to_le_bytes()).collect();
    for target in [Target::Keep, Target::F32] {
        let halves = pack(Format::F16, 256, &bytes, target).expect("whole rows");
        assert_eq!(bits(&values(&halves)), bits(&patterns.iter().map(|bits| half(*bits)).collect::<Vec<_>>()));
        let brain = pack(Format::Bf16, 256, &bytes, target).expect("whole rows");
        let expected: Vec<f32> = patterns.iter().map(|bits| f32::from_bits(u32::from(*bits) << 16)).collect();
        assert_eq!(bits(&values(&brain)), bits(&expected));
    }
}

#[test]
fn bf16_rounds_to_nearest() {
    let numbers = [1.0, 1.0 + 2.0_f32.powi(-8), 1.0 + 3.0 * 2.0_f32.powi(-8), 1.004, -0.3, f32::MAX, f32::NAN, 1e-40];
    let packed = values(&float_matrix(&KERNELS[0], &numbers, numbers.len(), Target::Bf16));
    let expected = [1.0, 1.0, 1.015_625, 1.007_812_5, -0.300_781_25, f32::INFINITY, f32::NAN, f32::from_bits(0x1_0000)];
    assert_eq!(bits(&packed), bits(&expected));
}

#[test]
fn eight_bit_values_are_within_half_a_step() {
    let numbers = Random(7).floats(11 * 96);
    let packed = values(&float_matrix(&KERNELS[0], &numbers, 96, Target::Int8));
    for (numbers, packed) in numbers.chunks_exact(32).zip(packed.chunks_exact(32)) {
        let greatest = numbers.iter().fold(0.0_f32, |greatest, value| greatest.max(value.abs()));
        for (number, packed) in numbers.iter().zip(packed) {
            assert!((number - packed).abs() <= greatest * (0.5 / 127.0 + 2.0_f32.powi(-11)), "{number} {packed}");
        }
    }
}

#[test]
fn four_bit_values_are_within_half_a_step() {
    let numbers = Random(8).floats(11 * 96);
    let packed = values(&float_matrix(&KERNELS[0], &numbers, 96, Target::Int4));
    for (numbers, packed) in numbers.chunks_exact(32).zip(packed.chunks_exact(32)) {
        for (number, packed) in numbers.iter().zip(packed) {
            assert!((number - packed).abs() <= 2.0 * (0.5 / 15.0 + 2.0_f32.powi(-10)), "{number} {packed}");
        }
    }
}

#[test]
fn non_finite_weights_stay_non_finite() {
    for bad in [f32::NAN, f32::INFINITY] {
        let mut numbers = vec![0.5; 64];
        numbers[3] = bad;
        for target in [Target::Int8, Target::Int4] {
            let packed = values(&float_matrix(&KERNELS[0], &numbers, 64, target));
            assert!(packed[..32].iter().any(|value| !value.is_finite()), "{target:?} {packed:?}");
            assert!(packed[32..].iter().all(|value| (value - 0.5).abs() < 1e-3), "{target:?} {packed:?}");
        }
    }
}

#[test]
fn constant_rows_are_packed_exactly() {
    for (value, target) in [(0.0, Target::Int8), (0.0, Target::Int4), (-0.75, Target::Int4)] {
        assert_eq!(values(&float_matrix(&KERNELS[0], &[value; 32], 32, target)), [value; 32]);
    }
}

#[test]
fn blocks_converted_to_f32_equal_the_kept_blocks() {
    for (format, length, ..) in BLOCKS {
        let bytes = random_rows(&mut Random(9), format, 13, 2 * length);
        let keep = pack(Format::Block(format), 2 * length, &bytes, Target::Keep).expect("whole rows");
        let floats = pack(Format::Block(format), 2 * length, &bytes, Target::F32).expect("whole rows");
        assert_eq!((keep.format(), floats.format()), (Format::Block(format), Format::F32));
        assert_eq!(values(&keep), values(&floats), "{format:?}");
    }
}

#[test]
fn packing_does_not_depend_on_the_thread_count() {
    let bytes = random_rows(&mut Random(10), BlockFormat::Q4_1, 100, 64);
    let rows = Rows { format: Format::Block(BlockFormat::Q4_1), columns: 64, bytes: &bytes };
    let alone = Kernels::new(1, IsaLevel::detect()).pack(&rows, Target::Keep).expect("whole rows");
    assert_eq!(values(&alone), values(&KERNELS[0].pack(&rows, Target::Keep).expect("whole rows")));
}

#[test]
fn mismatched_matrix_sizes_are_rejected() {
    let refused = |format, columns, length, target| {
        pack(format, columns, &vec![0; length], target).expect_err("the sizes do not fit")
    };
    let q4 = Format::Block(BlockFormat::Q4_0);
    let errors = [
        refused(q4, 33, 18, Target::Keep),
        refused(q4, 32, 17, Target::Keep),
        refused(q4, 32, 0, Target::Keep),
        refused(q4, 0, 18, Target::Keep),
        refused(Format::F32, 0, 4, Target::Keep),
        refused(Format::F32, 3, 10, Target::Keep),
        refused(Format::F32, 8, 32, Target::Int4),
        refused(Format::F32, usize::MAX / 2, 24, Target::Keep),
    ];
    error_texts::check_rows("kernels/pack", errors);
}

#[test]
fn a_row_beyond_the_last_is_refused() {
    let matrix = float_matrix(&KERNELS[0], &[1.0; 6], 2, Target::Keep);
    assert_eq!(matrix.read_row(3, &mut [0.0; 2]), Err(Error::Range { subject: "row", limit: 3, found: 3 }));
    assert!(matrix.read_row(2, &mut [0.0; 3]).is_err());
}

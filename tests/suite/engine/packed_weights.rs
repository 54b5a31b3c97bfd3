//! Weights as they are stored and as they are packed. Packed weights are compared with the GGUF
//! reader's own dequantization, to the bit.

use tandem_core::error::LoadError;
use tandem_core::weights::quant::{dequantize, not_finite};
use tandem_core::weights::{RowOrder, Stored};
use tandem_kernels::{BlockFormat, Format, IsaLevel, Kernels, Rows, Target};
use tandem_model_files::gguf::{GgmlType, Gguf};
use tandem_tests::gguf_file::File;

const BLOCKS: [(GgmlType, BlockFormat); 11] = [
    (GgmlType::IQ4_NL, BlockFormat::IQ4_NL),
    (GgmlType::IQ4_XS, BlockFormat::IQ4_XS),
    (GgmlType::Q3_K, BlockFormat::Q3_K),
    (GgmlType::Q4_0, BlockFormat::Q4_0),
    (GgmlType::Q4_1, BlockFormat::Q4_1),
    (GgmlType::Q4_K, BlockFormat::Q4_K),
    (GgmlType::Q5_0, BlockFormat::Q5_0),
    (GgmlType::Q5_1, BlockFormat::Q5_1),
    (GgmlType::Q5_K, BlockFormat::Q5_K),
    (GgmlType::Q6_K, BlockFormat::Q6_K),
    (GgmlType::Q8_0, BlockFormat::Q8_0),
];

/// Returns arbitrary bytes, so that scales are also infinite, subnormal or NaN.
fn bytes(count: usize) -> Vec<u8> {
    let mut state = 1_u64;
    let next = || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 56) as u8
    };
    std::iter::repeat_with(next).take(count).collect()
}

fn bits(value: f32) -> u32 {
    if value.is_nan() { u32::MAX } else { value.to_bits() }
}

#[test]
fn packed_blocks_equal_the_dequantization_of_the_reader() {
    let kernels = Kernels::new(2, IsaLevel::detect());
    for (dtype, format) in BLOCKS {
        let columns = 4 * dtype.block_len() as usize;
        let bytes = bytes(250 * 4 * dtype.block_bytes() as usize);
        let expected = dequantize(dtype, &bytes).expect("a known type");
        let rows = Rows { format: Format::Block(format), columns, bytes: &bytes };
        for target in [Target::Keep, Target::F32] {
            let matrix = kernels.pack(&rows, target).expect("whole rows");
            let mut row = vec![0.0; columns];
            for (index, expected) in expected.chunks_exact(columns).enumerate() {
                matrix.read_row(index, &mut row).expect("a row");
                let same = row.iter().zip(expected).all(|(found, expected)| bits(*found) == bits(*expected));
                assert!(same, "{format:?} as {target:?}, row {index}");
            }
        }
    }
}

/// The numbers of a block are finite if its scale and its minimum are.
#[test]
fn the_first_number_of_a_tensor_that_is_not_finite_is_found() {
    let floats = [GgmlType::F32, GgmlType::F16, GgmlType::BF16];
    for dtype in BLOCKS.map(|(dtype, _)| dtype).into_iter().chain(floats) {
        let size = dtype.block_bytes() as usize;
        let (mut sound, mut broken) = (Vec::new(), 0);
        for block in bytes(4000 * size).chunks_exact(size) {
            let wrong = dequantize(dtype, block).expect("a known type").into_iter().find(|number| !number.is_finite());
            let found = not_finite(dtype, block);
            assert_eq!(found.is_some(), wrong.is_some(), "{dtype:?} {block:?}");
            match wrong {
                None => sound.extend(block),
                Some(_) => {
                    broken += 1;
                    let found = not_finite(dtype, &[&sound, block].concat());
                    assert!(found.is_some_and(|number| !number.is_finite()), "{dtype:?} after {}", sound.len());
                }
            }
        }
        assert!(broken > 10 && not_finite(dtype, &sound).is_none(), "{dtype:?}: {broken}");
    }
}

/// Returns a file with a tensor of numbers from 0, in `rows` rows of one number.
fn numbers(rows: u64) -> Gguf {
    let path = File::new().weights("q", &[1, rows], |row| row as f32).write();
    Gguf::open(&path).expect("a file")
}

fn interleaved(file: &Gguf, heads: usize) -> Stored<'_> {
    let tensor = file.tensor("q").expect("the tensor");
    let order = RowOrder::Interleaved { heads };
    Stored::new("q".to_owned(), GgmlType::F32, tensor.dims, tensor.data, order)
}

#[test]
fn interleaved_rows_are_read_first_half_first() {
    let file = numbers(12);
    let stored = interleaved(&file, 2);
    let stored = stored.shaped(&[12, 1]).expect("whole heads");
    let expected = [0.0, 2.0, 4.0, 1.0, 3.0, 5.0, 6.0, 8.0, 10.0, 7.0, 9.0, 11.0];
    assert_eq!(stored.to_f32().expect("floats"), expected);
}

#[test]
fn heads_that_do_not_divide_the_rows_into_pairs_are_refused() {
    let file = numbers(6);
    for heads in [0, 2, 4, usize::MAX] {
        let error = interleaved(&file, heads).shaped(&[6, 1]).expect_err("no whole pairs");
        assert!(matches!(error, LoadError::TensorShape { .. }), "{heads}: {error}");
    }
}

#[test]
fn parts_of_interleaved_rows_are_the_rows_of_the_whole() {
    let file = numbers(24);
    let stored = interleaved(&file, 3);
    let whole = stored.to_f32().expect("floats");
    for start in 0..24 {
        for end in start + 1..=24 {
            let part = stored.floats(start..end).expect("floats");
            assert_eq!(part, whole[start..end], "rows {start} to {end}");
        }
    }
}

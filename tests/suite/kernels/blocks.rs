//! Blocks of every format in the layout of a file, and matrices made of them.

use super::Random;
use tandem_kernels::{BlockFormat, Format, Kernels, Matrix, Rows, Target};

/// Every block format: columns and bytes of a block, and the offsets of its f16 numbers.
pub(super) const BLOCKS: [(BlockFormat, usize, usize, &[usize]); 11] = [
    (BlockFormat::IQ4_NL, 32, 18, &[0]),
    (BlockFormat::IQ4_XS, 256, 136, &[0]),
    (BlockFormat::Q3_K, 256, 110, &[108]),
    (BlockFormat::Q4_0, 32, 18, &[0]),
    (BlockFormat::Q4_1, 32, 20, &[0, 2]),
    (BlockFormat::Q4_K, 256, 144, &[0, 2]),
    (BlockFormat::Q5_0, 32, 22, &[0]),
    (BlockFormat::Q5_1, 32, 24, &[0, 2]),
    (BlockFormat::Q5_K, 256, 176, &[0, 2]),
    (BlockFormat::Q6_K, 256, 210, &[208]),
    (BlockFormat::Q8_0, 32, 34, &[0]),
];

/// Returns random blocks whose f16 numbers are in the range of a model's: up to 1/16, of either
/// sign.
pub(super) fn random_rows(random: &mut Random, format: BlockFormat, rows: usize, columns: usize) -> Vec<u8> {
    let (_, length, size, halves) = BLOCKS.into_iter().find(|(known, ..)| *known == format).expect("a known format");
    let mut bytes = random.bytes(rows * columns / length * size);
    for block in bytes.chunks_exact_mut(size) {
        for half in halves {
            block[half + 1] = block[half + 1] & 0x83 | 0x28;
        }
    }
    bytes
}

/// Packs a matrix of random blocks.
pub(super) fn random_matrix(kernels: &Kernels, seed: u64, format: BlockFormat, rows: usize, columns: usize) -> Matrix {
    let bytes = random_rows(&mut Random(seed), format, rows, columns);
    let rows = Rows { format: Format::Block(format), columns, bytes: &bytes };
    kernels.pack(&rows, Target::Keep).expect("whole rows")
}

/// Packs a matrix of floats.
pub(super) fn float_matrix(kernels: &Kernels, values: &[f32], columns: usize, target: Target) -> Matrix {
    let bytes: Vec<u8> = values.iter().flat_map(|value| value.to_le_bytes()).collect();
    let rows = Rows { format: Format::F32, columns, bytes: &bytes };
    kernels.pack(&rows, target).expect("whole rows")
}

/// Reads all numbers of a matrix: [rows][columns].
pub(super) fn values(matrix: &Matrix) -> Vec<f32> {
    let mut values = vec![0.0; matrix.rows() * matrix.columns()];
    for (row, out) in values.chunks_exact_mut(matrix.columns()).enumerate() {
        matrix.read_row(row, out).expect("a row");
    }
    values
}

//! Whole blocks: squares of 32 rows x 16 bytes, two rows in each vector register.

use std::arch::x86_64::*;

use super::block::BLOCK_ROWS;
use super::sse2::{SIDE, load, store};

/// Does what `transpose` does for `BLOCK_ROWS` rows. Returns how many bytes of each row it wrote.
#[target_feature(enable = "avx2")]
pub(super) fn transpose(rows: &[u8], stride: usize, out: &mut [u8]) -> usize {
    let squares = out.as_chunks_mut::<{ SIDE * BLOCK_ROWS }>().0.iter_mut().take(stride / SIDE);
    for (index, out) in squares.enumerate() {
        let rows = &rows[index * SIDE..];
        let mut square = [_mm256_setzero_si256(); SIDE];
        for (row, pair) in square.iter_mut().enumerate() {
            let upper = load(rows[row * stride..].first_chunk().expect("a square"));
            let lower = load(rows[(row + BLOCK_ROWS / 2) * stride..].first_chunk().expect("a square"));
            *pair = _mm256_set_m128i(lower, upper);
        }
        let columns = turned(square);
        for (column, out) in columns.into_iter().zip(out.as_chunks_mut::<BLOCK_ROWS>().0) {
            store_wide(column, out);
        }
    }
    stride / SIDE * SIDE
}

/// The reverse of [`transpose`].
#[target_feature(enable = "avx2")]
pub(super) fn transpose_back(columns: &[u8], stride: usize, out: &mut [u8]) -> usize {
    let squares = columns.as_chunks::<{ SIDE * BLOCK_ROWS }>().0.iter().take(stride / SIDE);
    for (index, square) in squares.enumerate() {
        let mut lines = [_mm256_setzero_si256(); SIDE];
        for (line, bytes) in lines.iter_mut().zip(square.as_chunks().0) {
            *line = load_wide(bytes);
        }
        let rows = turned(lines);
        let out = &mut out[index * SIDE..];
        for (row, pair) in rows.into_iter().enumerate() {
            let below = row + BLOCK_ROWS / 2;
            store(_mm256_castsi256_si128(pair), out[row * stride..].first_chunk_mut().expect("a square"));
            store(_mm256_extracti128_si256::<1>(pair), out[below * stride..].first_chunk_mut().expect("a square"));
        }
    }
    stride / SIDE * SIDE
}

/// Swaps rows and columns of both squares of 16 x 16 bytes. The place of a byte is its row's and its
/// column's number, four bits each. Each round rotates these eight bits by one.
#[target_feature(enable = "avx2")]
fn turned(mut square: [__m256i; SIDE]) -> [__m256i; SIDE] {
    for _ in 0..4 {
        let before = square;
        for row in 0..SIDE / 2 {
            let (above, below) = (before[row], before[row + SIDE / 2]);
            square[2 * row] = _mm256_unpacklo_epi8(above, below);
            square[2 * row + 1] = _mm256_unpackhi_epi8(above, below);
        }
    }
    square
}

#[allow(unsafe_code)]
#[target_feature(enable = "avx2")]
fn load_wide(bytes: &[u8; BLOCK_ROWS]) -> __m256i {
    // SAFETY: an array of 32 bytes is read, at any alignment.
    unsafe { _mm256_loadu_si256(bytes.as_ptr().cast()) }
}

#[allow(unsafe_code)]
#[target_feature(enable = "avx2")]
fn store_wide(vector: __m256i, bytes: &mut [u8; BLOCK_ROWS]) {
    // SAFETY: an array of 32 bytes is written, at any alignment.
    unsafe { _mm256_storeu_si256(bytes.as_mut_ptr().cast(), vector) }
}

//! The two passes of a resize. Both are sums of weighted runs of bytes.

use super::sums::weigh;
use super::transpose::{BLOCK_ROWS, transpose, transpose_back};
use super::weights::Weights;
use crate::image::CHANNELS;

/// Filters along the width: rows of `width` pixels become rows of `weights.len()` pixels.
pub(super) fn resize_rows(bytes: &[u8], width: usize, weights: &Weights) -> Vec<u8> {
    let (from, to) = (width * CHANNELS, weights.len() * CHANNELS);
    let mut out = vec![0; bytes.len() / from * to];
    let mut source = vec![0; from * BLOCK_ROWS];
    let mut filtered = vec![0; to * BLOCK_ROWS];
    for (rows, out) in bytes.chunks(from * BLOCK_ROWS).zip(out.chunks_mut(to * BLOCK_ROWS)) {
        transpose(rows, from, &mut source);
        let pixels = filtered.chunks_exact_mut(CHANNELS * BLOCK_ROWS);
        for ((first, row), pixel) in weights.iter().zip(pixels) {
            weigh(&source[first * pixel.len()..], pixel.len(), row, weights.precision, pixel);
        }
        transpose_back(&filtered, to, out);
    }
    out
}

/// Filters along the height. `stride` is the bytes of a row.
pub(super) fn resize_columns(bytes: &[u8], stride: usize, weights: &Weights) -> Vec<u8> {
    let mut out = vec![0; weights.len() * stride];
    for ((first, row), out) in weights.iter().zip(out.chunks_exact_mut(stride)) {
        weigh(&bytes[first * stride..], stride, row, weights.precision, out);
    }
    out
}

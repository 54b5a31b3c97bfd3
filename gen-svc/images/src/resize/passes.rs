//! The two passes of a resize. Both are sums of weighted runs of bytes.

use super::sums::weigh;
use super::transpose::{BLOCK_ROWS, transpose, transpose_back};
use super::weights::Weights;
use crate::image::CHANNELS;
use crate::parallel::in_parts;

/// Filters along the width: rows of `width` pixels become rows of `weights.len()` pixels.
pub(super) fn resize_rows(bytes: &[u8], width: usize, weights: &Weights) -> Vec<u8> {
    let (from, to) = (width * CHANNELS, weights.len() * CHANNELS);
    let mut out = vec![0; bytes.len() / from * to];
    in_parts(&mut out, to * BLOCK_ROWS, |block, out| {
        let mut source = vec![0; from * BLOCK_ROWS];
        let mut filtered = vec![0; to * BLOCK_ROWS];
        let blocks = bytes.chunks(from * BLOCK_ROWS).skip(block);
        for (rows, out) in blocks.zip(out.chunks_mut(to * BLOCK_ROWS)) {
            transpose(rows, from, &mut source);
            let pixels = filtered.chunks_exact_mut(CHANNELS * BLOCK_ROWS);
            for ((first, row), pixel) in weights.iter().zip(pixels) {
                weigh(&source[first * pixel.len()..], pixel.len(), row, weights.precision, pixel);
            }
            transpose_back(&filtered, to, out);
        }
    });
    out
}

/// Filters along the height. `stride` is the bytes of a row.
pub(super) fn resize_columns(bytes: &[u8], stride: usize, weights: &Weights) -> Vec<u8> {
    let mut out = vec![0; weights.len() * stride];
    in_parts(&mut out, stride, |start, out| {
        for ((first, row), out) in weights.iter().skip(start).zip(out.chunks_exact_mut(stride)) {
            weigh(&bytes[first * stride..], stride, row, weights.precision, out);
        }
    });
    out
}

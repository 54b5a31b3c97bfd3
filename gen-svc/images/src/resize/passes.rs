//! The two passes of a resize. Both are sums of weighted runs of bytes.

use super::weights::Weights;
use crate::image::CHANNELS;

/// How many rows the first pass filters at once. They are transposed first, so that each source
/// pixel is one run of `CHANNELS * BLOCK_ROWS` bytes.
const BLOCK_ROWS: usize = 32;

/// How many sums are computed at once.
const LANES: usize = 32;

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

/// Writes up to `BLOCK_ROWS` rows to `out`, by byte of the row and then by row.
fn transpose(rows: &[u8], stride: usize, out: &mut [u8]) {
    for (index, row) in rows.chunks_exact(stride).enumerate() {
        for (byte, out) in row.iter().zip(out.chunks_exact_mut(BLOCK_ROWS)) {
            out[index] = *byte;
        }
    }
}

fn transpose_back(columns: &[u8], stride: usize, out: &mut [u8]) {
    for (index, row) in out.chunks_exact_mut(stride).enumerate() {
        for (byte, column) in row.iter_mut().zip(columns.chunks_exact(BLOCK_ROWS)) {
            *byte = column[index];
        }
    }
}

/// Writes the rounded sums of `weights.len()` runs of `source`, `stride` bytes apart.
fn weigh(source: &[u8], stride: usize, weights: &[i16], precision: u32, out: &mut [u8]) {
    let full = out.len() / LANES * LANES;
    let (blocks, rest) = out.split_at_mut(full);
    for (index, block) in blocks.chunks_exact_mut(LANES).enumerate() {
        weigh_block(&source[index * LANES..], stride, weights, precision, block);
    }
    for (index, byte) in rest.iter_mut().enumerate() {
        let column = source[full + index..].iter().step_by(stride);
        let sum: i32 = column.zip(weights).map(|(&byte, &weight)| i32::from(byte) * i32::from(weight)).sum();
        *byte = rounded(sum + (1 << precision >> 1), precision);
    }
}

fn weigh_block(source: &[u8], stride: usize, weights: &[i16], precision: u32, out: &mut [u8]) {
    let mut sums = [1 << precision >> 1; LANES];
    for (run, &weight) in source.chunks(stride).zip(weights) {
        let run: &[u8; LANES] = run.first_chunk().expect("a run has a block's bytes");
        for (sum, &byte) in sums.iter_mut().zip(run) {
            // A product of 16-bit numbers: most vector units have no fast one of 32 bits.
            *sum += i32::from(i16::from(byte)) * i32::from(weight);
        }
    }
    for (byte, sum) in out.iter_mut().zip(sums) {
        *byte = rounded(sum, precision);
    }
}

fn rounded(sum: i32, precision: u32) -> u8 {
    (sum >> precision).clamp(0, 255) as u8
}

//! The two passes of a resize. Both are sums of weighted runs of bytes. The second pass follows the
//! first one closely, so that the rows between them stay in the processor's cache.

use std::ops::Range;

use super::sums::weigh;
use super::transpose::{BLOCK_ROWS, transpose, transpose_back};
use super::weights::Weights;
use crate::image::CHANNELS;
use crate::parallel::in_shares;
use crate::spare::Buffer;

/// The least rows of the result that a thread computes. Rows of the source at the border of two shares
/// are filtered twice.
const LEAST_ROWS: usize = 64;

/// Filters along the width: rows of `width` pixels become rows of `weights.len()` pixels.
pub(super) fn resize_rows(bytes: &[u8], width: usize, weights: &Weights, out: &mut [u8]) {
    let (from, to) = (width * CHANNELS, weights.len() * CHANNELS);
    in_shares(out, to, BLOCK_ROWS, |start, out| {
        let mut filter = RowFilter::new(width, weights);
        let blocks = bytes[start * from..].chunks(from * BLOCK_ROWS);
        for (rows, out) in blocks.zip(out.chunks_mut(to * BLOCK_ROWS)) {
            filter.write(&rows[..out.len() / to * from], out);
        }
    });
}

/// Filters along the height. `stride` is the bytes of a row.
pub(super) fn resize_columns(bytes: &[u8], stride: usize, weights: &Weights, out: &mut [u8]) {
    in_shares(out, stride, BLOCK_ROWS, |start, out| {
        for ((first, row), out) in weights.iter().skip(start).zip(out.chunks_exact_mut(stride)) {
            weigh(&bytes[first * stride..], stride, row, weights.precision, out);
        }
    });
}

/// Filters along the width, then along the height. The weights are those of columns and of rows.
pub(super) fn resize_both(bytes: &[u8], width: usize, (columns, rows): (&Weights, &Weights), out: &mut [u8]) {
    let stride = columns.len() * CHANNELS;
    in_shares(out, stride, LEAST_ROWS, |start, out| {
        let mut window = Window::new(bytes, width, columns, rows.at(start).0.start, rows.most());
        for (index, out) in (start..).zip(out.chunks_exact_mut(stride)) {
            let (needed, weights) = rows.at(index);
            weigh(window.advanced(&needed), stride, weights, rows.precision, out);
        }
    });
}

/// Filters blocks of rows along the width.
struct RowFilter<'a> {
    weights: &'a Weights,
    /// The bytes of a row of the source, and of the result.
    sides: (usize, usize),
    /// A block of the source and one of the result, transposed.
    source: Buffer,
    filtered: Buffer,
}

impl<'a> RowFilter<'a> {
    fn new(width: usize, weights: &'a Weights) -> Self {
        let sides = (width * CHANNELS, weights.len() * CHANNELS);
        let [source, filtered] = [sides.0, sides.1].map(|side| Buffer::zeroed(side * BLOCK_ROWS));
        Self { weights, sides, source, filtered }
    }

    /// Writes the filtered rows, at most `BLOCK_ROWS`.
    fn write(&mut self, rows: &[u8], out: &mut [u8]) {
        transpose(rows, self.sides.0, &mut self.source);
        let pixels = self.filtered.chunks_exact_mut(CHANNELS * BLOCK_ROWS);
        for ((first, row), pixel) in self.weights.iter().zip(pixels) {
            weigh(&self.source[first * pixel.len()..], pixel.len(), row, self.weights.precision, pixel);
        }
        transpose_back(&self.filtered, self.sides.1, out);
    }
}

/// The rows of the source that the next rows of the result need, filtered along the width.
struct Window<'a> {
    source: &'a [u8],
    filter: RowFilter<'a>,
    bytes: Buffer,
    /// The index of the first row, and of the row after the last one.
    rows: Range<usize>,
}

impl<'a> Window<'a> {
    /// Returns an empty window in front of row `first`. It is moved past at most `most` rows at once.
    fn new(source: &'a [u8], width: usize, weights: &'a Weights, first: usize, most: usize) -> Self {
        let filter = RowFilter::new(width, weights);
        let bytes = Buffer::zeroed((most + BLOCK_ROWS) * filter.sides.1);
        Self { source, filter, bytes, rows: first..first }
    }

    /// Returns the filtered rows of a range, and more. Ranges must not go back.
    fn advanced(&mut self, needed: &Range<usize>) -> &[u8] {
        let (from, to) = self.filter.sides;
        while self.rows.end < needed.end {
            self.bytes.copy_within((needed.start - self.rows.start) * to..self.rows.len() * to, 0);
            self.rows.start = needed.start;
            let rows = self.source[self.rows.end * from..].chunks(from * BLOCK_ROWS).next();
            let rows = rows.expect("the range is inside of the source");
            let count = rows.len() / from;
            self.filter.write(rows, &mut self.bytes[self.rows.len() * to..][..count * to]);
            self.rows.end += count;
        }
        &self.bytes[(needed.start - self.rows.start) * to..]
    }
}

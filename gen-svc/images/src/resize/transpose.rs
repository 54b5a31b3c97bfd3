//! Transposition of a block of rows of bytes, square by square.

#[cfg(not(target_arch = "x86_64"))]
mod portable;
#[cfg(target_arch = "x86_64")]
mod sse2;

#[cfg(not(target_arch = "x86_64"))]
use portable::{SIDE, turn};
#[cfg(target_arch = "x86_64")]
use sse2::{SIDE, turn};

/// How many rows the first pass filters at once. They are transposed first, so that each source
/// pixel is one run of `CHANNELS * BLOCK_ROWS` bytes.
pub(super) const BLOCK_ROWS: usize = 32;

/// Writes up to `BLOCK_ROWS` rows to `out`, by byte of the row and then by row.
pub(super) fn transpose(rows: &[u8], stride: usize, out: &mut [u8]) {
    let count = rows.len() / stride;
    for column in (0..stride).step_by(SIDE) {
        for row in (0..count).step_by(SIDE) {
            if column + SIDE <= stride && row + SIDE <= count {
                turn(&rows[row * stride + column..], stride, &mut out[column * BLOCK_ROWS + row..], BLOCK_ROWS);
            } else {
                for (row, column) in places(row, count, column, stride) {
                    out[column * BLOCK_ROWS + row] = rows[row * stride + column];
                }
            }
        }
    }
}

/// The reverse of [`transpose`].
pub(super) fn transpose_back(columns: &[u8], stride: usize, out: &mut [u8]) {
    let count = out.len() / stride;
    for column in (0..stride).step_by(SIDE) {
        for row in (0..count).step_by(SIDE) {
            if column + SIDE <= stride && row + SIDE <= count {
                turn(&columns[column * BLOCK_ROWS + row..], BLOCK_ROWS, &mut out[row * stride + column..], stride);
            } else {
                for (row, column) in places(row, count, column, stride) {
                    out[row * stride + column] = columns[column * BLOCK_ROWS + row];
                }
            }
        }
    }
}

/// Returns the (row, column) of each byte of a square at the edge.
fn places(row: usize, rows: usize, column: usize, columns: usize) -> impl Iterator<Item = (usize, usize)> {
    let columns = column..columns.min(column + SIDE);
    (row..rows.min(row + SIDE)).flat_map(move |row| columns.clone().map(move |column| (row, column)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_of_any_size_are_transposed_and_back() {
        for (count, stride) in [(1, 3), (8, 8), (9, 21), (BLOCK_ROWS, 33), (BLOCK_ROWS - 1, 16), (BLOCK_ROWS, 64)] {
            let rows: Vec<u8> = (0..count * stride).map(|index| (index % 251) as u8).collect();
            let mut columns = vec![0; stride * BLOCK_ROWS];
            transpose(&rows, stride, &mut columns);
            assert_eq!(columns[2 * BLOCK_ROWS + count - 1], rows[(count - 1) * stride + 2]);
            let mut back = vec![0; rows.len()];
            transpose_back(&columns, stride, &mut back);
            assert_eq!(back, rows, "{count} x {stride}");
        }
    }
}

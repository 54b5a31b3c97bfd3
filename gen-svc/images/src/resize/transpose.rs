//! Transposition of a block of rows of bytes, in squares of 8 x 8.

/// How many rows the first pass filters at once. They are transposed first, so that each source
/// pixel is one run of `CHANNELS * BLOCK_ROWS` bytes.
pub(super) const BLOCK_ROWS: usize = 32;

/// The side of a square.
const SIDE: usize = 8;

/// Writes up to `BLOCK_ROWS` rows to `out`, by byte of the row and then by row.
pub(super) fn transpose(rows: &[u8], stride: usize, out: &mut [u8]) {
    let count = rows.len() / stride;
    for column in (0..stride).step_by(SIDE) {
        for row in (0..count).step_by(SIDE) {
            if column + SIDE <= stride && row + SIDE <= count {
                let square = turned(load(&rows[row * stride + column..], stride));
                store(square, &mut out[column * BLOCK_ROWS + row..], BLOCK_ROWS);
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
                let square = turned(load(&columns[column * BLOCK_ROWS + row..], BLOCK_ROWS));
                store(square, &mut out[row * stride + column..], stride);
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

fn load(bytes: &[u8], stride: usize) -> [u64; SIDE] {
    std::array::from_fn(|row| u64::from_le_bytes(*bytes[row * stride..].first_chunk().expect("a full square")))
}

fn store(square: [u64; SIDE], bytes: &mut [u8], stride: usize) {
    for (row, line) in square.iter().enumerate() {
        bytes[row * stride..][..SIDE].copy_from_slice(&line.to_le_bytes());
    }
}

/// Swaps rows and columns: bytes, then pairs of bytes, then halves of lines.
fn turned(mut square: [u64; SIDE]) -> [u64; SIDE] {
    for (step, mask) in [(1, 0x00ff_00ff_00ff_00ff), (2, 0x0000_ffff_0000_ffff), (4, 0x0000_0000_ffff_ffff)] {
        for row in (0..SIDE).filter(|row| row & step == 0) {
            let shift = 8 * step;
            let swapped = ((square[row] >> shift) ^ square[row + step]) & mask;
            square[row + step] ^= swapped;
            square[row] ^= swapped << shift;
        }
    }
    square
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_of_any_size_are_transposed_and_back() {
        for (count, stride) in [(1, 3), (8, 8), (9, 21), (BLOCK_ROWS, 33), (BLOCK_ROWS - 1, 16)] {
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

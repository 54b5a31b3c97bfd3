//! Transposition of a block of rows of bytes, square by square.

#[cfg(target_arch = "x86_64")]
mod avx2;
mod block;
#[cfg(not(target_arch = "x86_64"))]
mod portable;
#[cfg(target_arch = "x86_64")]
mod sse2;

pub(super) use block::BLOCK_ROWS;
#[cfg(not(target_arch = "x86_64"))]
use portable::{SIDE, turn};
#[cfg(target_arch = "x86_64")]
use sse2::{SIDE, turn};

/// Writes up to `BLOCK_ROWS` rows to `out`, by byte of the row and then by row.
pub(super) fn transpose(rows: &[u8], stride: usize, out: &mut [u8]) {
    #[cfg(target_arch = "x86_64")]
    if rows.len() == stride * BLOCK_ROWS && is_x86_feature_detected!("avx2") {
        #[allow(unsafe_code)]
        // SAFETY: the processor has the instructions that the function is compiled for.
        let done = unsafe { avx2::transpose(rows, stride, out) };
        return transpose_from(done, rows, stride, out);
    }
    transpose_from(0, rows, stride, out);
}

/// Transposes the bytes of each row from `start` on.
fn transpose_from(start: usize, rows: &[u8], stride: usize, out: &mut [u8]) {
    let count = rows.len() / stride;
    for column in (start..stride).step_by(SIDE) {
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
    #[cfg(target_arch = "x86_64")]
    if out.len() == stride * BLOCK_ROWS && is_x86_feature_detected!("avx2") {
        #[allow(unsafe_code)]
        // SAFETY: the processor has the instructions that the function is compiled for.
        let done = unsafe { avx2::transpose_back(columns, stride, out) };
        return transpose_back_from(done, columns, stride, out);
    }
    transpose_back_from(0, columns, stride, out);
}

fn transpose_back_from(start: usize, columns: &[u8], stride: usize, out: &mut [u8]) {
    let count = out.len() / stride;
    for column in (start..stride).step_by(SIDE) {
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
        for (count, stride) in
            [(1, 3), (8, 8), (9, 21), (BLOCK_ROWS, 9), (BLOCK_ROWS, 33), (BLOCK_ROWS - 1, 16), (BLOCK_ROWS, 64)]
        {
            let rows: Vec<u8> = (0..count * stride).map(|index| (index % 251) as u8).collect();
            let mut columns = vec![0; stride * BLOCK_ROWS];
            transpose(&rows, stride, &mut columns);
            for (row, line) in rows.chunks(stride).enumerate() {
                let turned = columns.iter().skip(row).step_by(BLOCK_ROWS);
                assert!(line.iter().eq(turned), "{count} x {stride}, row {row}");
            }
            let (mut back, mut plain) = (vec![0; rows.len()], vec![0; columns.len()]);
            transpose_back(&columns, stride, &mut back);
            assert_eq!(back, rows, "{count} x {stride}");
            transpose_from(0, &rows, stride, &mut plain);
            assert_eq!(plain, columns, "{count} x {stride}");
            back.fill(0);
            transpose_back_from(0, &columns, stride, &mut back);
            assert_eq!(back, rows, "{count} x {stride}");
        }
    }
}

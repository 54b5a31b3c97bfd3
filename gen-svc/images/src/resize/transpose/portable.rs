//! Squares of 8 x 8 bytes, each row in a number of 64 bits.

/// The side of a square.
pub(super) const SIDE: usize = 8;

/// Writes the square at the start of `from` to the start of `to`, with rows and columns swapped.
pub(super) fn turn(from: &[u8], from_stride: usize, to: &mut [u8], to_stride: usize) {
    let rows =
        std::array::from_fn(|row| u64::from_le_bytes(*from[row * from_stride..].first_chunk().expect("a full square")));
    for (column, line) in turned(rows).into_iter().enumerate() {
        to[column * to_stride..][..SIDE].copy_from_slice(&line.to_le_bytes());
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

//! Squares of 16 x 16 bytes, each row in a vector register. Every x86-64 processor has SSE2.

use std::arch::x86_64::{__m128i, _mm_loadu_si128, _mm_storeu_si128, _mm_unpackhi_epi8, _mm_unpacklo_epi8};
use std::array;

/// The side of a square.
pub(super) const SIDE: usize = 16;

/// Writes the square at the start of `from` to the start of `to`, with rows and columns swapped.
pub(super) fn turn(from: &[u8], from_stride: usize, to: &mut [u8], to_stride: usize) {
    let mut square = array::from_fn(|row| load(from[row * from_stride..].first_chunk().expect("a full square")));
    // The place of a byte is its row's and its column's number, four bits each. Each round rotates
    // these eight bits by one.
    for _ in 0..4 {
        square = zipped(square);
    }
    for (column, line) in square.into_iter().enumerate() {
        store(line, to[column * to_stride..].first_chunk_mut().expect("a full square"));
    }
}

/// Interleaves each row of the first half with the row as far down in the second half.
fn zipped(square: [__m128i; SIDE]) -> [__m128i; SIDE] {
    let (upper, lower) = square.split_at(SIDE / 2);
    array::from_fn(|row| {
        let (above, below) = (upper[row / 2], lower[row / 2]);
        #[allow(unsafe_code)]
        // SAFETY: the processor has SSE2.
        unsafe {
            if row % 2 == 0 { _mm_unpacklo_epi8(above, below) } else { _mm_unpackhi_epi8(above, below) }
        }
    })
}

#[allow(unsafe_code)]
#[inline]
pub(super) fn load(bytes: &[u8; SIDE]) -> __m128i {
    // SAFETY: an array of 16 bytes is read, at any alignment. Every x86-64 has the instruction.
    unsafe { _mm_loadu_si128(bytes.as_ptr().cast()) }
}

#[allow(unsafe_code)]
#[inline]
pub(super) fn store(vector: __m128i, bytes: &mut [u8; SIDE]) {
    // SAFETY: an array of 16 bytes is written, at any alignment. Every x86-64 has the instruction.
    unsafe { _mm_storeu_si128(bytes.as_mut_ptr().cast(), vector) }
}

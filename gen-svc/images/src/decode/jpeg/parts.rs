//! Parts of a JPEG image, decoded at the same time.
//!
//! Entropy-coded data must be read from its start. Without vector instructions, this is a third of the
//! work. libjpeg leaves out the rest for rows that it skips. With them, parts would gain nothing.

mod lines;

use std::os::raw::c_int;
use std::sync::atomic::{AtomicUsize, Ordering};

use rayon::iter::{IntoParallelIterator, ParallelIterator};

use lines::Lines;

/// The pixels from which an image is decoded in parts.
const LEAST_PIXELS: usize = 1 << 18;

/// The most parts. Each of them reads the entropy-coded data before it.
const MOST_PARTS: usize = 4;

/// The part of the work that is left out for skipped rows.
const SKIPPED: f64 = 0.7;

/// The rows of a part are a multiple of this number, which suits each subsampling of chroma.
const ROWS: usize = 32;

/// The images that are being decoded.
static RUNNING: AtomicUsize = AtomicUsize::new(0);

/// Counts an image while it is decoded. Concurrent images share the threads.
pub(super) struct Running(usize);

impl Running {
    pub(super) fn new() -> Self {
        Self(1 + RUNNING.fetch_add(1, Ordering::Relaxed))
    }

    /// Returns into how many parts an image of this number of pixels is cut.
    pub(super) fn parts(&self, pixels: usize) -> usize {
        if pixels < LEAST_PIXELS || has_vector_instructions() {
            return 1;
        }
        (rayon::current_num_threads() / self.0).clamp(1, MOST_PARTS)
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        RUNNING.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Returns true if the decoder was built with vector instructions that the processor has.
fn has_vector_instructions() -> bool {
    #[allow(unsafe_code)]
    unsafe extern "C" {
        /// libjpeg-turbo, `jsimd.h`.
        safe fn jsimd_can_idct_islow() -> c_int;
    }
    jsimd_can_idct_islow() != 0
}

/// Decodes a file to `out`, rows of RGB. Returns false if its data is damaged or of another kind than
/// most files: then `out` has other bytes of the image.
pub(super) fn decode(bytes: &[u8], stride: usize, parts: usize, out: &mut [u8]) -> bool {
    let (mut rest, mut pieces) = (out, Vec::new());
    let ends = ends(rest.len() / stride, parts);
    let mut first = 0;
    for end in ends {
        let (piece, after) = rest.split_at_mut((end - first) * stride);
        pieces.push((first, piece));
        (rest, first) = (after, end);
    }
    pieces.into_par_iter().all(|(first, piece)| Lines::of(bytes).is_some_and(|lines| lines.read(first, stride, piece)))
}

/// Returns the last row of each part, plus one. All parts take about as long.
fn ends(rows: usize, parts: usize) -> impl Iterator<Item = usize> {
    let share = move |part: usize| (1.0 - SKIPPED.powi(part as i32)) / (1.0 - SKIPPED.powi(parts as i32));
    (1..=parts).map(move |part| if part == parts { rows } else { (rows as f64 * share(part)) as usize / ROWS * ROWS })
}

#[cfg(test)]
mod tests {
    use mozjpeg::{ColorSpace, Compress};

    use super::*;
    use crate::decode::jpeg::tests::whole;

    /// How many damaged files are decoded.
    const ROUNDS: usize = 3000;

    /// Returns a file of pseudorandom waves. Chroma is subsampled by (x, y).
    fn file((width, height): (usize, usize), chroma: (u8, u8), is_progressive: bool) -> Vec<u8> {
        let mut jpeg = Compress::new(ColorSpace::JCS_RGB);
        jpeg.set_size(width, height);
        jpeg.set_chroma_sampling_pixel_sizes(chroma, chroma);
        jpeg.set_fastest_defaults();
        if is_progressive {
            jpeg.set_progressive_mode();
        }
        let byte = |index: usize| (index % 251 * 7 + index / (3 * width) * 5 + index * index / 977) as u8;
        let pixels: Vec<u8> = (0..3 * width * height).map(byte).collect();
        let mut started = jpeg.start_compress(Vec::new()).expect("a vector");
        started.write_scanlines(&pixels).expect("all rows");
        started.finish().expect("a file")
    }

    #[test]
    fn parts_have_the_bytes_of_the_whole_image() {
        for chroma in [(1, 1), (2, 1), (1, 2), (2, 2)] {
            for (width, height) in [(33, 300), (64, 64), (50, 131), (17, 33)] {
                let bytes = file((width, height), chroma, false);
                for parts in 1..=MOST_PARTS {
                    let mut out = vec![0; 3 * width * height];
                    assert!(decode(&bytes, 3 * width, parts, &mut out));
                    assert!(out == whole(&bytes), "{width} x {height}, chroma {chroma:?}, {parts} parts");
                }
            }
        }
    }

    #[test]
    fn rows_from_any_row_on_are_those_of_the_whole_image() {
        let bytes = file((40, 100), (2, 2), false);
        let whole = whole(&bytes);
        for first in 0..100 {
            let mut out = vec![0; 3 * 40 * (100 - first).min(20)];
            assert!(Lines::of(&bytes).expect("a file").read(first, 3 * 40, &mut out));
            assert!(out == whole[first * 3 * 40..][..out.len()], "from row {first}");
        }
    }

    #[test]
    fn other_files_are_not_decoded_in_parts() {
        let mut out = vec![0; 3 * 40 * 100];
        let good = file((40, 100), (2, 2), false);
        let mut damaged = good.clone();
        let middle = damaged.len() / 2;
        damaged[middle..middle + 2].copy_from_slice(&[0xff, 0xd9]);
        for bytes in [file((40, 100), (2, 2), true), damaged, good[..middle].to_vec(), good[..200].to_vec()] {
            assert!(!decode(&bytes, 3 * 40, 2, &mut out));
        }
    }

    #[test]
    fn damaged_files_have_the_bytes_of_the_whole_image_or_are_left_to_it() {
        let files = [(1, 1), (2, 2), (2, 1)].map(|chroma| file((48, 70), chroma, false));
        let mut state = 1_u64;
        let mut next = |limit: usize| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (state >> 33) as usize % limit
        };
        let mut decoded = 0;
        for round in 0..ROUNDS {
            let mut bytes = files[round % files.len()].clone();
            for _ in 0..=next(2) {
                let place = next(bytes.len());
                bytes[place] = next(256) as u8;
            }
            let mut out = vec![0; 3 * 48 * 70];
            if decode(&bytes, 3 * 48, 2, &mut out) {
                decoded += 1;
                let expected = whole(&bytes);
                // The height may be damaged.
                assert!(out == expected || out.len() != expected.len(), "round {round}");
            }
        }
        assert!(decoded > ROUNDS / 10 && decoded < ROUNDS);
    }

    #[test]
    fn the_ends_of_parts_rise_to_the_last_row() {
        for (rows, parts) in [(1, 4), (31, 2), (960, 2), (4000, 4)] {
            let ends: Vec<usize> = ends(rows, parts).collect();
            assert!(ends.is_sorted() && ends.len() == parts && ends[parts - 1] == rows, "{ends:?}");
        }
        assert_eq!(ends(960, 2).collect::<Vec<_>>(), [544, 960]);
    }
}

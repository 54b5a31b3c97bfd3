//! Run-length-encoded BMP, as Pillow reads it: pixels that the runs skip have the first colour of
//! the palette, and data that ends before the last pixel is an error.
//!
//! The decoder paints skipped pixels black and accepts incomplete data. So the length of the data is
//! checked here, and the decoder gets a palette of grays, from which the indexes of the pixels are
//! read.

use crate::image::CHANNELS;

/// Where the length of the second header is, behind the first.
const HEADER: usize = 14;
/// Where the start of the pixels is.
const OFFSET: usize = 10;
/// Where the number of colours is.
const COLORS: usize = 46;
/// The bytes of a colour in the palette.
const COLOR: usize = 4;
/// The end of the bitmap.
const END: [u8; 2] = [0, 1];

/// A file with run-length-encoded pixels.
pub(super) struct RunLength<'a> {
    headers: &'a [u8],
    /// The colours, each with blue first and one more byte.
    palette: &'a [[u8; COLOR]],
    runs: &'a [u8],
    /// True if an index has four bits.
    has_half_bytes: bool,
}

impl<'a> RunLength<'a> {
    /// Returns `None` for a file whose pixels are stored in another way.
    pub(super) fn of(bytes: &'a [u8]) -> Option<Self> {
        let number = |at: usize| Some(u32::from_le_bytes(*bytes.get(at..)?.first_chunk()?));
        let header = usize::try_from(number(HEADER)?).ok().filter(|length| *length >= 40)?;
        let has_half_bytes = match number(30)? {
            1 => false,
            2 => true,
            _ => return None,
        };
        let (headers, rest) = bytes.split_at_checked(HEADER.checked_add(header)?)?;
        let colors = match number(COLORS)? {
            0 => most_colors(has_half_bytes),
            colors => usize::try_from(colors).ok()?,
        };
        let palette = rest.as_chunks().0;
        let runs = bytes.get(usize::try_from(number(OFFSET)?).ok()?..)?;
        Some(Self { headers, palette: palette.get(..colors).unwrap_or(palette), runs, has_half_bytes })
    }

    /// Returns the same file with a gray for each index, and with an end.
    pub(super) fn with_grays(&self) -> Vec<u8> {
        let colors = most_colors(self.has_half_bytes);
        let mut bytes = self.headers.to_vec();
        let mut set = |at: usize, number: usize| bytes[at..at + 4].copy_from_slice(&(number as u32).to_le_bytes());
        set(COLORS, colors);
        set(OFFSET, self.headers.len() + colors * COLOR);
        bytes.extend((0..colors).flat_map(|index| [index as u8; COLOR]));
        bytes.extend(self.runs);
        bytes.extend(END);
        bytes
    }

    /// Replaces the grays by the colours of the palette. Others are black.
    pub(super) fn set_colors(&self, pixels: &mut [u8]) {
        for pixel in pixels.as_chunks_mut::<CHANNELS>().0 {
            let [blue, green, red, _] = self.palette.get(usize::from(pixel[0])).copied().unwrap_or_default();
            *pixel = [red, green, blue];
        }
    }

    /// Returns true if the runs reach the last pixel.
    pub(super) fn is_complete(&self, width: usize, height: usize) -> bool {
        let all = width * height;
        let (mut rest, mut filled, mut column) = (self.runs, 0_usize, 0);
        while filled < all {
            let [first, second, after @ ..] = rest else { return false };
            (rest, (filled, column)) = match (*first, usize::from(*second)) {
                (0, 0) => (after, (filled.next_multiple_of(width), 0)),
                (0, 1) => return false,
                (0, 2) => {
                    let [right, up, after @ ..] = after else { return false };
                    let filled = all.min(filled + usize::from(*right) + usize::from(*up) * width);
                    (after, (filled, filled % width))
                }
                (0, count) => {
                    let count = count.min(all - filled);
                    let length = if self.has_half_bytes { count.div_ceil(2) } else { count };
                    let Some(after) = after.get(length..) else { return false };
                    (after.get(length % 2..).unwrap_or_default(), (filled + count, column + count))
                }
                (count, _) => {
                    let count = usize::from(count).min(width.saturating_sub(column));
                    (after, (filled + count, column + count))
                }
            };
        }
        true
    }
}

/// Returns how many colours an index can name.
fn most_colors(has_half_bytes: bool) -> usize {
    if has_half_bytes { 16 } else { 256 }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn is_complete(runs: &[u8], has_half_bytes: bool) -> bool {
        RunLength { headers: &[], palette: &[], runs, has_half_bytes }.is_complete(4, 2)
    }

    #[test]
    fn runs_reach_the_last_pixel() {
        assert!(is_complete(&[4, 7, 0, 0, 4, 8, 0, 1], false));
        assert!(is_complete(&[4, 7, 0, 0, 4, 8], false));
        assert!(is_complete(&[0, 4, 1, 2, 3, 4, 0, 0, 4, 8], false));
        assert!(is_complete(&[0, 4, 0x12, 0x34, 0, 0, 1, 8, 0, 0], true));
        assert!(is_complete(&[0, 2, 4, 1], false));
    }

    #[test]
    fn runs_that_end_early_are_incomplete() {
        for runs in [&[4, 7, 0, 0, 4][..], &[4, 7, 0, 1], &[4, 7, 0, 0, 3, 8, 0, 1], &[0, 4, 1, 2, 3], &[0, 2, 1]] {
            assert!(!is_complete(runs, false), "{runs:?}");
        }
    }
}

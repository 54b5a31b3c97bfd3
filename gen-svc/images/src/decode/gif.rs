//! GIF. A still image is drawn on the background colour, as in torchvision. Of an animation, the first
//! frame is drawn on the transparent colour or on colour 0, as in Pillow.

use std::io::Cursor;
use std::num::NonZeroU64;

use gif::{ColorOutput, DecodeOptions, DecodingError, Frame, MemoryLimit};

use super::limits::HeaderRules;
use super::output::damaged;
use crate::error::ImageError;
use crate::format::Format;
use crate::image::{CHANNELS, RgbImage};

/// The byte of a file with the index of the background colour. The library clamps the index.
const BACKGROUND: usize = 11;

pub(super) fn decode(bytes: &[u8], rules: &HeaderRules<'_>) -> Result<RgbImage, ImageError> {
    let failed = damaged::<DecodingError>(Format::Gif);
    let mut decoder = options(rules).read_info(Cursor::new(bytes)).map_err(&failed)?;
    let screen = (usize::from(decoder.width()), usize::from(decoder.height()));
    rules.check(screen.0 as u64, screen.1 as u64)?;
    let global = decoder.global_palette().map(<[u8]>::to_vec);
    let header = decoder.next_frame_info().map_err(&failed)?;
    let mut frame = header.ok_or_else(|| damaged(Format::Gif)("file has no frame"))?.clone();
    let (width, height) = canvas(screen, &frame);
    let (width, height) = rules.check(width as u64, height as u64)?;
    let mut indexes = vec![0; decoder.buffer_size()];
    decoder.read_into_buffer(&mut indexes).map_err(&failed)?;
    let palette = frame.palette.take().or_else(|| global.clone()).unwrap_or_default();
    let is_still = matches!(decoder.next_frame_info(), Ok(None));
    let (canvas, transparent) = match is_still {
        true => (background(bytes, global.as_deref()), frame.transparent),
        false => (colour(&palette, frame.transparent.unwrap_or(0)), None),
    };
    let mut out = canvas.repeat(width * height);
    paint(&frame, &indexes, width, &mut out, |index| (Some(index) != transparent).then(|| colour(&palette, index)));
    RgbImage::new(width, height, out).ok_or_else(|| damaged(Format::Gif)("pixels are missing"))
}

/// Returns the background colour. Black if the palette of the file does not have it.
fn background(file: &[u8], global: Option<&[u8]>) -> [u8; CHANNELS] {
    let start = file.get(BACKGROUND).map_or(0, |index| usize::from(*index) * CHANNELS);
    global.and_then(|palette| palette.get(start..)?.first_chunk()).copied().unwrap_or_default()
}

fn options(rules: &HeaderRules<'_>) -> DecodeOptions {
    let mut options = DecodeOptions::new();
    options.set_color_output(ColorOutput::Indexed);
    let bytes = NonZeroU64::new(rules.memory() as u64).unwrap_or(NonZeroU64::MIN);
    options.set_memory_limit(MemoryLimit::Bytes(bytes));
    options
}

/// Returns the sides of the screen, enlarged where the frame exceeds it.
fn canvas(screen: (usize, usize), frame: &Frame<'_>) -> (usize, usize) {
    let right = usize::from(frame.left) + usize::from(frame.width);
    let bottom = usize::from(frame.top) + usize::from(frame.height);
    (screen.0.max(right), screen.1.max(bottom))
}

/// Writes the colours of a frame to an image. `colour` returns none where the frame is transparent.
fn paint(
    frame: &Frame<'_>,
    indexes: &[u8],
    width: usize,
    out: &mut [u8],
    colour: impl Fn(u8) -> Option<[u8; CHANNELS]>,
) {
    let (left, columns) = (usize::from(frame.left), usize::from(frame.width));
    if columns == 0 {
        return;
    }
    let rows = out.chunks_exact_mut(width * CHANNELS).skip(usize::from(frame.top));
    for (row, indexes) in rows.zip(indexes.chunks_exact(columns)) {
        let pixels = row.as_chunks_mut::<CHANNELS>().0.iter_mut().skip(left);
        for (pixel, index) in pixels.zip(indexes) {
            *pixel = colour(*index).unwrap_or(*pixel);
        }
    }
}

/// Returns a colour of the palette. An index behind the palette's end is a shade of gray.
fn colour(palette: &[u8], index: u8) -> [u8; CHANNELS] {
    let start = usize::from(index) * CHANNELS;
    palette.get(start..).and_then(|rest| rest.first_chunk()).copied().unwrap_or([index; CHANNELS])
}

#[cfg(test)]
mod tests {
    use crate::decode::Limits;

    fn bytes(hex: &str) -> Vec<u8> {
        let digits: Vec<u8> = hex.bytes().filter(u8::is_ascii_hexdigit).collect();
        let byte = |pair: &[u8; 2]| u8::from_str_radix(std::str::from_utf8(pair).expect("ASCII"), 16).expect("hex");
        digits.as_chunks().0.iter().map(byte).collect()
    }

    /// 6 x 5 pixels, and a frame of 3 x 2 with its own palette and a transparent colour. The pixels are
    /// those of torchvision 0.28.
    #[test]
    fn a_still_image_is_drawn_on_the_background_colour() {
        let file = bytes(
            "4749463839610600050082020044444444444444444444444444444444444444444444444421f9040100000300 \
         2c0100020003000200821c1c1c1c1c1c1c1c1c1c1c1c1c1c1c1c1c1c1c1c1c1c1c1c03053847366809003b",
        );
        let expected = bytes(
            "4444444444444444444444444444444444444444444444444444444444444444444444444444444444441c1c1c \
         1c1c1c4444444444444444441c1c1c4444441c1c1c444444444444444444444444444444444444444444444444",
        );
        let image = crate::decode(&file, &Limits::default()).expect("an image");
        assert_eq!((image.width(), image.height()), (6, 5));
        assert_eq!(image.bytes(), expected);
    }
}

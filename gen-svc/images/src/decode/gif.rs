//! GIF: the first frame, on a canvas of the transparent colour or of colour 0, as in Pillow.

use std::io::Cursor;
use std::num::NonZeroU64;

use gif::{ColorOutput, DecodeOptions, DecodingError, Frame, MemoryLimit};

use super::limits::Limits;
use super::output::damaged;
use crate::error::ImageError;
use crate::format::Format;
use crate::image::{CHANNELS, RgbImage};

pub(super) fn decode(bytes: &[u8], limits: &Limits) -> Result<RgbImage, ImageError> {
    let failed = damaged::<DecodingError>(Format::Gif);
    let mut decoder = options(limits).read_info(Cursor::new(bytes)).map_err(&failed)?;
    let screen = (usize::from(decoder.width()), usize::from(decoder.height()));
    limits.check(screen.0 as u64, screen.1 as u64)?;
    let global = decoder.global_palette().map(<[u8]>::to_vec);
    let header = decoder.next_frame_info().map_err(&failed)?;
    let mut frame = header.ok_or_else(|| damaged(Format::Gif)("file has no frame"))?.clone();
    let (width, height) = canvas(screen, &frame);
    let (width, height) = limits.check(width as u64, height as u64)?;
    let mut indexes = vec![0; decoder.buffer_size()];
    decoder.read_into_buffer(&mut indexes).map_err(&failed)?;
    let palette = frame.palette.take().or(global).unwrap_or_default();
    let mut out = vec![frame.transparent.unwrap_or(0); width * height];
    paint(&frame, &indexes, width, &mut out);
    let bytes = out.iter().flat_map(|&index| colour(&palette, index)).collect();
    RgbImage::new(width, height, bytes).ok_or_else(|| damaged(Format::Gif)("pixels are missing"))
}

fn options(limits: &Limits) -> DecodeOptions {
    let mut options = DecodeOptions::new();
    options.set_color_output(ColorOutput::Indexed);
    let bytes = NonZeroU64::new(limits.memory() as u64).unwrap_or(NonZeroU64::MIN);
    options.set_memory_limit(MemoryLimit::Bytes(bytes));
    options
}

/// Returns the sides of the screen, enlarged where the frame exceeds it.
fn canvas(screen: (usize, usize), frame: &Frame<'_>) -> (usize, usize) {
    let right = usize::from(frame.left) + usize::from(frame.width);
    let bottom = usize::from(frame.top) + usize::from(frame.height);
    (screen.0.max(right), screen.1.max(bottom))
}

fn paint(frame: &Frame<'_>, indexes: &[u8], width: usize, out: &mut [u8]) {
    let (left, columns) = (usize::from(frame.left), usize::from(frame.width));
    if columns == 0 {
        return;
    }
    let rows = out.chunks_exact_mut(width).skip(usize::from(frame.top));
    for (row, indexes) in rows.zip(indexes.chunks_exact(columns)) {
        row[left..left + columns].copy_from_slice(indexes);
    }
}

/// Returns a colour of the palette. An index behind the palette's end is a shade of gray.
fn colour(palette: &[u8], index: u8) -> [u8; CHANNELS] {
    let start = usize::from(index) * CHANNELS;
    palette.get(start..).and_then(|rest| rest.first_chunk()).copied().unwrap_or([index; CHANNELS])
}

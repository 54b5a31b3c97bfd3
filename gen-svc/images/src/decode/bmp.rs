//! BMP. Of 16-bit pixels, Pillow rounds the channels down, and the decoder rounds to nearest.

use std::io::Cursor;

use image::codecs::bmp::BmpDecoder;
use image::{ColorType, ImageDecoder, ImageError as Failure};

use super::limits::HeaderRules;
use super::output::{damaged, rgb};
use super::run_length::RunLength;
use crate::error::ImageError;
use crate::format::Format;
use crate::image::{CHANNELS, RgbImage};

pub(super) fn decode(bytes: &[u8], rules: &HeaderRules<'_>) -> Result<RgbImage, ImageError> {
    let runs = RunLength::of(bytes);
    let grays = runs.as_ref().map(RunLength::with_grays);
    let failed = damaged::<Failure>(Format::Bmp);
    let decoder = BmpDecoder::new(Cursor::new(grays.as_deref().unwrap_or(bytes))).map_err(&failed)?;
    let (width, height) = decoder.dimensions();
    let sides = rules.check(width, height)?;
    if runs.as_ref().is_some_and(|runs| !runs.is_complete(sides.0, sides.1)) {
        return Err(damaged(Format::Bmp)("run-length data ends before the last pixel"));
    }
    let channels = match decoder.color_type() {
        ColorType::L8 => 1,
        ColorType::Rgba8 => 4,
        _ => 3,
    };
    let mut pixels = vec![0; sides.0 * sides.1 * channels];
    decoder.read_image(&mut pixels).map_err(failed)?;
    match (runs, channel_bits(bytes)) {
        (Some(runs), _) => runs.set_colors(&mut pixels),
        (None, Some(bits)) if channels == CHANNELS => round_down(&mut pixels, bits),
        _ => {}
    }
    rgb(Format::Bmp, sides, &pixels, channels)
}

/// Returns the bits of each channel of 16-bit pixels, or `None` for other pixels.
fn channel_bits(bytes: &[u8]) -> Option<[u32; CHANNELS]> {
    const GREEN_OF_6_BITS: [u8; 4] = [0xe0, 0x07, 0, 0];
    if bytes.get(28..30)? != [16, 0] {
        return None;
    }
    let has_masks = bytes.get(30..34)? == [3, 0, 0, 0];
    let six = has_masks && bytes.get(58..62)? == GREEN_OF_6_BITS;
    Some(if six { [5, 6, 5] } else { [5; CHANNELS] })
}

fn round_down(pixels: &mut [u8], bits: [u32; CHANNELS]) {
    for pixel in pixels.as_chunks_mut::<CHANNELS>().0 {
        for (value, bits) in pixel.iter_mut().zip(bits) {
            *value = (u32::from(*value >> (8 - bits)) * 255 / ((1 << bits) - 1)) as u8;
        }
    }
}

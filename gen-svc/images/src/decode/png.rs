//! PNG. Palettes and small depths become 8 bits. 16-bit gray clips at 255, as Pillow does it, and
//! of other 16-bit samples the high byte is used.

use std::io::Cursor;

use png::{BitDepth, ColorType, Decoder, Transformations};

use super::limits::HeaderRules;
use super::orientation;
use super::output::{damaged, rgb};
use crate::error::ImageError;
use crate::format::Format;
use crate::image::{CHANNELS, RgbImage};

pub(super) fn decode(bytes: &[u8], rules: &HeaderRules<'_>) -> Result<RgbImage, ImageError> {
    let failed = damaged::<png::DecodingError>(Format::Png);
    let mut decoder = Decoder::new_with_limits(Cursor::new(bytes), png::Limits { bytes: rules.memory() });
    decoder.set_transformations(Transformations::EXPAND);
    decoder.set_ignore_text_chunk(true);
    decoder.set_ignore_iccp_chunk(true);
    let header = decoder.read_header_info().map_err(&failed)?;
    let sides = rules.check(header.width, header.height)?;
    let mut reader = decoder.read_info().map_err(&failed)?;
    // The decoder would panic.
    if reader.info().palette.as_ref().is_some_and(|palette| !palette.len().is_multiple_of(CHANNELS)) {
        return Err(damaged(Format::Png)("palette ends within a colour"));
    }
    let exif = reader.info().exif_metadata.as_deref().map(<[u8]>::to_vec);
    let size = reader.output_buffer_size().ok_or_else(|| damaged(Format::Png)("image is too large"))?;
    let mut pixels = vec![0; size];
    let frame = reader.next_frame(&mut pixels).map_err(&failed)?;
    if frame.bit_depth == BitDepth::Sixteen {
        pixels = eight_bits(&pixels, frame.color_type);
    }
    let image = rgb(Format::Png, sides, &pixels, frame.color_type.samples())?;
    Ok(orientation::apply(image, exif.as_deref()))
}

fn eight_bits(pixels: &[u8], color: ColorType) -> Vec<u8> {
    let clipped = |sample: &[u8]| if sample[0] == 0 { sample[1] } else { u8::MAX };
    let high = |sample: &[u8]| sample[0];
    let samples = pixels.chunks_exact(2);
    if color == ColorType::Grayscale { samples.map(clipped).collect() } else { samples.map(high).collect() }
}

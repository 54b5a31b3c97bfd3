//! WebP, lossy and lossless. The EXIF orientation is not applied, as in torchvision.

use std::io::Cursor;

use image_webp::{DecodingError, WebPDecoder};

use super::limits::HeaderRules;
use super::output::{damaged, rgb};
use crate::error::ImageError;
use crate::format::Format;
use crate::image::RgbImage;

pub(super) fn decode(bytes: &[u8], rules: &HeaderRules<'_>) -> Result<RgbImage, ImageError> {
    let failed = damaged::<DecodingError>(Format::WebP);
    let mut decoder = WebPDecoder::new(Cursor::new(bytes)).map_err(&failed)?;
    decoder.set_memory_limit(rules.memory());
    let (width, height) = decoder.dimensions();
    let sides = rules.check(width, height)?;
    let channels = if decoder.has_alpha() { 4 } else { 3 };
    let mut pixels = vec![0; sides.0 * sides.1 * channels];
    decoder.read_image(&mut pixels).map_err(&failed)?;
    rgb(Format::WebP, sides, &pixels, channels)
}

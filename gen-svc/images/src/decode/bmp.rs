//! BMP.

use std::io::Cursor;

use image::codecs::bmp::BmpDecoder;
use image::{ColorType, ImageDecoder, ImageError as Failure};

use super::{Format, Limits, damaged, rgb};
use crate::error::ImageError;
use crate::image::RgbImage;

pub(super) fn decode(bytes: &[u8], limits: &Limits) -> Result<RgbImage, ImageError> {
    let failed = damaged::<Failure>(Format::Bmp);
    let decoder = BmpDecoder::new(Cursor::new(bytes)).map_err(&failed)?;
    let (width, height) = decoder.dimensions();
    let sides = limits.check(width, height)?;
    let channels = match decoder.color_type() {
        ColorType::L8 => 1,
        ColorType::Rgba8 => 4,
        _ => 3,
    };
    let mut pixels = vec![0; sides.0 * sides.1 * channels];
    decoder.read_image(&mut pixels).map_err(failed)?;
    rgb(Format::Bmp, sides, &pixels, channels)
}

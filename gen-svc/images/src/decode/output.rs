//! The results of all decoders.

use std::fmt;

use crate::error::ImageError;
use crate::format::Format;
use crate::image::RgbImage;

/// Returns the error of a decoder.
pub(super) fn damaged<E: fmt::Display>(format: Format) -> impl Fn(E) -> ImageError {
    move |reason| ImageError::Damaged { format, reason: reason.to_string() }
}

/// Returns the image of a decoder's pixels, of which each begins with red, green and blue.
pub(super) fn rgb(
    format: Format,
    (width, height): (usize, usize),
    pixels: &[u8],
    channels: usize,
) -> Result<RgbImage, ImageError> {
    let bytes = match channels {
        1 | 2 => pixels.chunks_exact(channels).flat_map(|pixel| [pixel[0]; 3]).collect(),
        3 => pixels.to_vec(),
        _ => pixels.chunks_exact(channels).flat_map(|pixel| [pixel[0], pixel[1], pixel[2]]).collect(),
    };
    RgbImage::new(width, height, bytes).ok_or_else(|| damaged(format)("pixels are missing"))
}

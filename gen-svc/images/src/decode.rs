//! Decoding of JPEG, PNG, WebP, GIF and BMP to RGB.
//!
//! JPEG bytes equal libjpeg-turbo's and WebP bytes libwebp's. The bytes of the other formats equal
//! Pillow's. Alpha is discarded: a transparent pixel keeps its colour. The EXIF orientation of JPEG
//! and PNG is applied.

mod bmp;
mod gif;
mod jpeg;
mod limits;
mod orientation;
mod output;
mod png;
mod run_length;
mod webp;

use std::panic::{AssertUnwindSafe, catch_unwind};

use crate::error::ImageError;
use crate::format::{Format, sniff};
use crate::image::RgbImage;
pub use limits::Limits;
use limits::{Accept, HeaderRules};
use output::damaged;

/// Decodes an image. Its format is that of its bytes. An animation's first frame is returned.
pub fn decode(bytes: &[u8], limits: &Limits) -> Result<RgbImage, ImageError> {
    decode_if(bytes, limits, &|_, _| Ok(()))
}

/// Decodes an image if `accept` accepts the width and the height in its header. The EXIF orientation
/// may swap them later.
pub(crate) fn decode_if(bytes: &[u8], limits: &Limits, accept: Accept<'_>) -> Result<RgbImage, ImageError> {
    if bytes.len() > limits.max_bytes {
        return Err(ImageError::Bytes { bytes: bytes.len(), limit: limits.max_bytes });
    }
    let format = sniff(bytes).ok_or(ImageError::Format)?;
    let decoder = match format {
        Format::Jpeg => jpeg::decode,
        Format::Png => png::decode,
        Format::WebP => webp::decode,
        Format::Gif => gif::decode,
        Format::Bmp => bmp::decode,
    };
    // libjpeg's errors unwind the stack. A defect of another decoder must not end the service.
    catch_unwind(AssertUnwindSafe(|| decoder(bytes, &HeaderRules { limits, accept })))
        .unwrap_or_else(|panic| Err(damaged(format)(panic_text(&*panic))))
}

fn panic_text(panic: &(dyn std::any::Any + Send)) -> String {
    let text = panic.downcast_ref::<String>().map(String::as_str).or_else(|| panic.downcast_ref::<&str>().copied());
    text.unwrap_or("the decoder failed").to_owned()
}

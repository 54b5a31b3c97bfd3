//! Decoding of JPEG, PNG, WebP, GIF and BMP to RGB.
//!
//! JPEG bytes equal libjpeg-turbo's, WebP bytes libwebp's, all others Pillow's. Alpha is discarded:
//! a pixel keeps its colour even where it is transparent. The EXIF orientation is applied.

mod bmp;
mod gif;
mod jpeg;
mod orientation;
mod png;
mod webp;

use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};

use crate::error::ImageError;
use crate::image::RgbImage;

/// A supported format.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Format {
    Jpeg,
    Png,
    WebP,
    Gif,
    Bmp,
}

impl fmt::Display for Format {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(match self {
            Self::Jpeg => "JPEG",
            Self::Png => "PNG",
            Self::WebP => "WebP",
            Self::Gif => "GIF",
            Self::Bmp => "BMP",
        })
    }
}

/// Limits of an image. They are checked before its pixels are decoded.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// The most bytes of an encoded image.
    pub max_bytes: usize,
    /// The most pixels of a decoded image. A pixel takes up to 12 bytes while it is decoded.
    pub max_pixels: u64,
}

impl Default for Limits {
    /// 32 MiB and 33,554,432 pixels.
    fn default() -> Self {
        Self { max_bytes: 32 << 20, max_pixels: 32 << 20 }
    }
}

impl Limits {
    /// Checks the sides that a header declares and returns them.
    fn check(&self, width: impl Into<u64>, height: impl Into<u64>) -> Result<(usize, usize), ImageError> {
        let (width, height) = (width.into(), height.into());
        if width == 0 || height == 0 {
            return Err(ImageError::Empty { width, height });
        }
        let too_many = ImageError::Pixels { width, height, limit: self.max_pixels };
        match width.checked_mul(height) {
            Some(pixels) if pixels <= self.max_pixels => {}
            _ => return Err(too_many),
        }
        let side = |value| usize::try_from(value).map_err(|_| too_many.clone());
        Ok((side(width)?, side(height)?))
    }

    /// Returns how many bytes a decoder may allocate.
    fn memory(&self) -> usize {
        usize::try_from(self.max_pixels.saturating_mul(12)).unwrap_or(usize::MAX)
    }
}

/// Returns the format that the first bytes name.
#[must_use]
pub fn sniff(bytes: &[u8]) -> Option<Format> {
    match bytes {
        [0xff, 0xd8, 0xff, ..] => Some(Format::Jpeg),
        [0x89, b'P', b'N', b'G', b'\r', b'\n', 0x1a, b'\n', ..] => Some(Format::Png),
        [b'R', b'I', b'F', b'F', _, _, _, _, b'W', b'E', b'B', b'P', ..] => Some(Format::WebP),
        [b'G', b'I', b'F', b'8', b'7' | b'9', b'a', ..] => Some(Format::Gif),
        [b'B', b'M', ..] => Some(Format::Bmp),
        _ => None,
    }
}

/// Decodes an image. Its format is that of its bytes. An animation's first frame is returned.
pub fn decode(bytes: &[u8], limits: &Limits) -> Result<RgbImage, ImageError> {
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
    catch_unwind(AssertUnwindSafe(|| decoder(bytes, limits)))
        .unwrap_or_else(|panic| Err(damaged(format)(panic_text(&*panic))))
}

fn panic_text(panic: &(dyn std::any::Any + Send)) -> String {
    let text = panic.downcast_ref::<String>().map(String::as_str).or_else(|| panic.downcast_ref::<&str>().copied());
    text.unwrap_or("the decoder failed").to_owned()
}

/// Returns the error of a decoder.
fn damaged<E: fmt::Display>(format: Format) -> impl Fn(E) -> ImageError {
    move |reason| ImageError::Damaged { format, reason: reason.to_string() }
}

/// Returns the image of a decoder's pixels, of which each begins with red, green and blue.
fn rgb(
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_limit_of_pixels_is_checked_without_overflow() {
        let limits = Limits { max_bytes: 1, max_pixels: 6 };
        assert_eq!(limits.check(2_u32, 3_u32), Ok((2, 3)));
        assert!(matches!(limits.check(2_u32, 4_u32), Err(ImageError::Pixels { limit: 6, .. })));
        assert!(matches!(limits.check(u64::MAX, 2_u32), Err(ImageError::Pixels { .. })));
        assert_eq!(limits.check(0_u32, 4_u32), Err(ImageError::Empty { width: 0, height: 4 }));
    }

    #[test]
    fn bytes_without_a_known_start_have_no_format() {
        assert_eq!(sniff(b""), None);
        assert_eq!(sniff(b"<svg>"), None);
        assert_eq!(sniff(b"GIF89a"), Some(Format::Gif));
    }
}

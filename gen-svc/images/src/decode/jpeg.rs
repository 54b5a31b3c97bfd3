//! JPEG, by libjpeg-turbo's decoder: slow integer IDCT, fancy upsampling.

use std::io::{self, BufRead, Read};

use mozjpeg::{ColorSpace, Decompress, Marker};

use super::limits::Limits;
use super::orientation;
use super::output::damaged;
use crate::error::ImageError;
use crate::format::Format;
use crate::image::RgbImage;

/// The most scans of a file. Encoders write about ten.
const MAX_SCANS: usize = 200;

/// The start of an APP1 segment that contains EXIF.
const EXIF: &[u8] = b"Exif\0\0";

/// Decodes all of `bytes`. A truncated file is an error. Damaged entropy-coded data is not: libjpeg
/// continues after it, and torchvision returns the result.
pub(super) fn decode(bytes: &[u8], limits: &Limits) -> Result<RgbImage, ImageError> {
    check_scans(bytes)?;
    let failed = damaged::<io::Error>(Format::Jpeg);
    let mut jpeg = Decompress::with_markers(&[Marker::APP(1)]).from_reader(Untruncated(bytes)).map_err(&failed)?;
    let sides = limits.check(jpeg.width() as u64, jpeg.height() as u64)?;
    jpeg.dct_method(mozjpeg::DctMethod::IntegerSlow);
    jpeg.do_fancy_upsampling(true);
    let exif = jpeg.markers().find_map(|marker| marker.data.strip_prefix(EXIF)).map(<[u8]>::to_vec);
    let pixels = match jpeg.color_space() {
        ColorSpace::JCS_CMYK | ColorSpace::JCS_YCCK => cmyk(jpeg),
        _ => scanlines(jpeg, ColorSpace::JCS_RGB),
    };
    let image = RgbImage::new(sides.0, sides.1, pixels.map_err(failed)?);
    let image = image.ok_or_else(|| damaged(Format::Jpeg)("pixels are missing"))?;
    Ok(orientation::apply(image, exif.as_deref()))
}

/// Refuses a file with too many scans. Inside of a scan, the searched bytes do not occur.
fn check_scans(bytes: &[u8]) -> Result<(), ImageError> {
    let scans = bytes.windows(2).filter(|pair| *pair == [0xff, 0xda]).count();
    if scans > MAX_SCANS { Err(ImageError::Scans { scans, limit: MAX_SCANS }) } else { Ok(()) }
}

fn scanlines<R: BufRead>(jpeg: Decompress<R>, to: ColorSpace) -> io::Result<Vec<u8>> {
    let mut started = jpeg.to_colorspace(to)?;
    let pixels = started.read_scanlines()?;
    started.finish()?;
    Ok(pixels)
}

/// Converts the inverted CMYK that Adobe's encoders write.
fn cmyk<R: BufRead>(jpeg: Decompress<R>) -> io::Result<Vec<u8>> {
    let pixels = scanlines(jpeg, ColorSpace::JCS_CMYK)?;
    Ok(pixels.chunks_exact(4).flat_map(|pixel| [0, 1, 2].map(|channel| scaled(pixel[channel], pixel[3]))).collect())
}

/// Returns `a * b / 255`, rounded.
fn scaled(a: u8, b: u8) -> u8 {
    let product = u32::from(a) * u32::from(b) + 128;
    (((product >> 8) + product) >> 8) as u8
}

/// A source whose end is an error. libjpeg would treat it as the end of the image.
struct Untruncated<'a>(&'a [u8]);

impl Read for Untruncated<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        self.0.read(buffer)
    }
}

impl BufRead for Untruncated<'_> {
    fn fill_buf(&mut self) -> io::Result<&[u8]> {
        if self.0.is_empty() {
            Err(io::Error::new(io::ErrorKind::InvalidData, "file is truncated"))
        } else {
            Ok(self.0)
        }
    }

    fn consume(&mut self, amount: usize) {
        self.0 = &self.0[amount..];
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ink_is_scaled_and_rounded() {
        assert_eq!([scaled(255, 255), scaled(0, 255), scaled(255, 1), scaled(128, 128)], [255, 0, 1, 64]);
    }

    #[test]
    fn scans_are_limited() {
        assert_eq!(check_scans(&[0xff, 0xda].repeat(MAX_SCANS)), Ok(()));
        assert!(check_scans(&[0xff, 0xda].repeat(MAX_SCANS + 1)).is_err());
    }
}

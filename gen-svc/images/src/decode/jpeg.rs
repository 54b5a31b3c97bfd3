//! JPEG, by libjpeg-turbo's decoder: slow integer IDCT, fancy upsampling.

use std::io::{self, BufRead, Read};

use mozjpeg::{ColorSpace, Decompress, Marker};

use super::limits::HeaderRules;
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
pub(super) fn decode(bytes: &[u8], rules: &HeaderRules<'_>) -> Result<RgbImage, ImageError> {
    check_scans(bytes)?;
    let failed = damaged::<io::Error>(Format::Jpeg);
    let mut jpeg = Decompress::with_markers(&[Marker::APP(1)]).from_reader(Untruncated(bytes)).map_err(&failed)?;
    let sides = rules.check(jpeg.width() as u64, jpeg.height() as u64)?;
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

fn check_scans(bytes: &[u8]) -> Result<(), ImageError> {
    let scans = count_scans(bytes);
    if scans > MAX_SCANS { Err(ImageError::Scans { scans, limit: MAX_SCANS }) } else { Ok(()) }
}

/// Returns how many scans begin before the end of the image. A file may have other data after it.
fn count_scans(bytes: &[u8]) -> usize {
    let (mut rest, mut scans) = (bytes, 0);
    while let Some(start) = rest.iter().position(|byte| *byte == 0xff) {
        rest = &rest[start + 1..];
        match rest {
            // The end of the image.
            [0xd9, ..] => break,
            // A byte of data, a marker without a segment, or a fill byte.
            [0x00 | 0x01 | 0xd0..=0xd8 | 0xff, ..] => {}
            [marker, high, low, ..] => {
                scans += usize::from(*marker == 0xda);
                let length = usize::from(u16::from_be_bytes([*high, *low]));
                rest = rest.get(1 + length..).unwrap_or_default();
            }
            _ => break,
        }
    }
    scans
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
        // A scan's segment, data with a stuffed byte, and a restart marker.
        let scan = [0xff, 0xda, 0, 4, 0xff, 0xda, 7, 0xff, 0, 0xff, 0xd0];
        let file = |scans| [&[0xff, 0xd8][..], &scan.repeat(scans), &[0xff, 0xd9]].concat();
        assert_eq!(check_scans(&file(MAX_SCANS)), Ok(()));
        assert!(check_scans(&file(MAX_SCANS + 1)).is_err());
        assert_eq!(count_scans(&[file(3), file(5)].concat()), 3);
        assert_eq!(count_scans(&[0xff, 0xd8, 0xff, 0xda, 0xff]), 0);
    }
}

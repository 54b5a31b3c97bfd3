//! JPEG, by libjpeg-turbo's decoder: slow integer IDCT, fancy upsampling.

mod parts;

use std::io::{self, BufRead, Read};

use mozjpeg::{ColorSpace, Decompress, Marker};

use super::limits::HeaderRules;
use super::orientation;
use super::output::damaged;
use crate::error::ImageError;
use crate::format::Format;
use crate::image::{CHANNELS, RgbImage};
use parts::Running;

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
    let image = RgbImage::written(sides.0, sides.1, |out| match jpeg.color_space() {
        ColorSpace::JCS_CMYK | ColorSpace::JCS_YCCK => cmyk(jpeg, out),
        _ => rgb(bytes, jpeg, out),
    });
    Ok(orientation::apply(image.map_err(failed)?, exif.as_deref()))
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

/// Decodes in parts where that is faster, or else as a whole.
fn rgb<R: BufRead>(bytes: &[u8], jpeg: Decompress<R>, out: &mut [u8]) -> io::Result<()> {
    let running = Running::new();
    let parts = running.parts(jpeg.width() * jpeg.height());
    if parts > 1 && parts::decode(bytes, jpeg.width() * CHANNELS, parts, out) {
        return Ok(());
    }
    scanlines(jpeg, ColorSpace::JCS_RGB, out)
}

fn scanlines<R: BufRead>(jpeg: Decompress<R>, to: ColorSpace, out: &mut [u8]) -> io::Result<()> {
    let mut started = jpeg.to_colorspace(to)?;
    started.read_scanlines_into(out)?;
    started.finish()
}

/// Converts the inverted CMYK that Adobe's encoders write.
fn cmyk<R: BufRead>(jpeg: Decompress<R>, out: &mut [u8]) -> io::Result<()> {
    let mut inks = vec![0; jpeg.width() * jpeg.height() * 4];
    scanlines(jpeg, ColorSpace::JCS_CMYK, &mut inks)?;
    for (ink, pixel) in inks.as_chunks::<4>().0.iter().zip(out.as_chunks_mut().0) {
        *pixel = [0, 1, 2].map(|channel| scaled(ink[channel], ink[3]));
    }
    Ok(())
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

    /// Returns the pixels of a file that is decoded as a whole.
    pub(super) fn whole(bytes: &[u8]) -> Vec<u8> {
        let jpeg = Decompress::with_markers(&[]).from_reader(Untruncated(bytes)).expect("a header");
        let mut out = vec![0; jpeg.width() * jpeg.height() * CHANNELS];
        scanlines(jpeg, ColorSpace::JCS_RGB, &mut out).expect("pixels");
        out
    }

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

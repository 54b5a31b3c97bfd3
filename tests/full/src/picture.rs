//! Images with 5 x 5 fields and noise, drawn from a seed, as PNG files.
//! `golden/make_image_architectures.py` writes the same files.

use serde::Deserialize;
use tandem_tests::scramble;

use crate::image_model::crc32;

/// The samples of a PNG file's pixels, each of 8 bits.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Kind {
    Gray,
    GrayAlpha,
    Rgb,
    Rgba,
    /// Indices of 16 colours, some of them transparent.
    Palette,
}

/// An image, from which a PNG file is made.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
pub struct Picture {
    kind: Kind,
    width: u32,
    height: u32,
    /// The EXIF orientation. 0: the file has none.
    orientation: u8,
    seed: u64,
}

impl Picture {
    /// Returns the PNG file (PNG specification, 5 and 11).
    #[must_use]
    pub fn png(&self) -> Vec<u8> {
        let (color, channels) = match self.kind {
            Kind::Gray => (0, 1),
            Kind::Rgb => (2, 3),
            Kind::Palette => (3, 1),
            Kind::GrayAlpha => (4, 2),
            Kind::Rgba => (6, 4),
        };
        let sides = [self.width, self.height].map(u32::to_be_bytes).concat();
        let mut bytes = b"\x89PNG\r\n\x1a\n".to_vec();
        bytes.extend(chunk(b"IHDR", &[&sides[..], &[8, color, 0, 0, 0]].concat()));
        if self.orientation > 0 {
            bytes.extend(chunk(b"eXIf", &exif(self.orientation)));
        }
        let mut pixels = samples(self.seed, [self.width, self.height, channels].map(u64::from));
        if self.kind == Kind::Palette {
            pixels.iter_mut().for_each(|sample| *sample >>= 4);
            bytes.extend(chunk(b"PLTE", &samples(self.seed + 1, [16, 1, 3])));
            bytes.extend(chunk(b"tRNS", &samples(self.seed + 2, [16, 1, 1])));
        }
        let rows = pixels.chunks((self.width * channels) as usize);
        let rows: Vec<u8> = rows.flat_map(|row| [&[0], row].concat()).collect();
        bytes.extend(chunk(b"IDAT", &stored(&rows)));
        bytes.extend(chunk(b"IEND", &[]));
        bytes
    }
}

/// Returns the samples of an image by row, column and channel.
fn samples(seed: u64, [width, height, channels]: [u64; 3]) -> Vec<u8> {
    let of_seed = seed << 32;
    let sample = |index: u64| {
        let (pixel, channel) = (index / channels, index % channels);
        let (y, x) = (pixel / width, pixel % width);
        let field = (y * 5 / height) * 5 + x * 5 / width;
        let flat = scramble(of_seed + field * 4 + channel) >> 56;
        let noise = scramble(of_seed + (1 << 31) + index) >> 60;
        (flat ^ noise) as u8
    };
    (0..width * height * channels).map(sample).collect()
}

fn chunk(kind: &[u8; 4], data: &[u8]) -> Vec<u8> {
    let body = [&kind[..], data].concat();
    [&(data.len() as u32).to_be_bytes()[..], &body, &crc32(&body).to_be_bytes()].concat()
}

/// Returns a TIFF structure with one entry: the orientation, a 16-bit number.
fn exif(orientation: u8) -> Vec<u8> {
    let entry = [1, 0x12, 0, 3, 0, 0, 0, 1, 0, orientation, 0, 0];
    [&b"MM\0\x2a\0\0\0\x08\0\x01"[..], &entry, &[0; 4]].concat()
}

/// Returns data in the zlib format, not compressed (RFC 1950, RFC 1951).
fn stored(data: &[u8]) -> Vec<u8> {
    let (mut bytes, mut left) = (b"\x78\x01".to_vec(), data.len());
    for part in data.chunks(65535) {
        left -= part.len();
        bytes.push(u8::from(left == 0));
        bytes.extend((part.len() as u16).to_le_bytes());
        bytes.extend((!(part.len() as u16)).to_le_bytes());
        bytes.extend(part);
    }
    let step = |(a, b): (u32, u32), byte: &u8| ((a + u32::from(*byte)) % 65521, (a + u32::from(*byte) + b) % 65521);
    let (a, b) = data.iter().fold((1, 0), step);
    bytes.extend((b << 16 | a).to_be_bytes());
    bytes
}

//! A decoded image.

use std::fmt;

use crate::spare::Buffer;

/// The channels of a pixel: red, green, blue.
pub const CHANNELS: usize = 3;

/// An image of 8-bit red, green and blue, by row, column and channel. Neither side is zero.
#[derive(Clone, PartialEq, Eq)]
pub struct RgbImage {
    width: usize,
    height: usize,
    bytes: Buffer,
}

impl RgbImage {
    /// Returns `None` if a side is zero or `bytes` is not `width * height * 3` long.
    #[must_use]
    pub fn new(width: usize, height: usize, bytes: Vec<u8>) -> Option<Self> {
        let length = width.checked_mul(height)?.checked_mul(CHANNELS)?;
        (length > 0 && bytes.len() == length).then(|| Self { width, height, bytes: bytes.into() })
    }

    /// Returns an image whose bytes `write` writes. Bytes that `write` leaves are zero. Neither side may be
    /// zero.
    pub(crate) fn written<E>(
        width: usize,
        height: usize,
        write: impl FnOnce(&mut [u8]) -> Result<(), E>,
    ) -> Result<Self, E> {
        let mut bytes = Buffer::zeroed(width * height * CHANNELS);
        write(&mut bytes)?;
        Ok(Self { width, height, bytes })
    }

    /// Returns the width in pixels.
    #[must_use]
    pub fn width(&self) -> usize {
        self.width
    }

    /// Returns the height in pixels.
    #[must_use]
    pub fn height(&self) -> usize {
        self.height
    }

    /// Returns the bytes by row, column and channel.
    #[must_use]
    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// Returns the rectangle of all pixels.
    pub fn area(&self) -> Area {
        Area { left: 0, top: 0, width: self.width, height: self.height }
    }

    /// Returns the rows, each `width * 3` bytes.
    pub(crate) fn rows(&self) -> impl Iterator<Item = &[u8]> {
        self.bytes.chunks_exact(self.width * CHANNELS)
    }

    /// Returns the image in the middle of a black one, which is not smaller. An odd rest is at the right and
    /// at the bottom.
    #[must_use]
    pub fn on_black(&self, width: usize, height: usize) -> Self {
        let (left, top) = ((width - self.width) / 2, (height - self.height) / 2);
        let mut bytes = Buffer::zeroed(width * height * CHANNELS);
        for (row, out) in self.rows().zip(bytes.chunks_exact_mut(width * CHANNELS).skip(top)) {
            out[left * CHANNELS..][..row.len()].copy_from_slice(row);
        }
        Self { width, height, bytes }
    }

    /// Returns a part of the image. The part must be inside and not empty.
    pub fn crop(&self, area: Area) -> Self {
        let columns = area.left * CHANNELS..(area.left + area.width) * CHANNELS;
        let rows = self.rows().skip(area.top).take(area.height);
        let bytes: Vec<u8> = rows.flat_map(|row| &row[columns.clone()]).copied().collect();
        Self { width: area.width, height: area.height, bytes: bytes.into() }
    }
}

impl fmt::Debug for RgbImage {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "RgbImage({} x {})", self.width, self.height)
    }
}

/// A rectangle of an image, in pixels.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Area {
    pub left: usize,
    pub top: usize,
    pub width: usize,
    pub height: usize,
}

impl Area {
    /// Returns the part inside of an image with these sides. It may be empty.
    pub fn inside(self, width: usize, height: usize) -> Self {
        Self {
            width: self.width.min(width.saturating_sub(self.left)),
            height: self.height.min(height.saturating_sub(self.top)),
            ..self
        }
    }
}

/// Returns `rows` x `columns` areas of equal size, row by row.
pub fn grid(rows: usize, columns: usize, (height, width): (usize, usize)) -> impl Iterator<Item = Area> {
    (0..rows * columns).map(move |index| Area {
        left: index % columns * width,
        top: index / columns * height,
        width,
        height,
    })
}

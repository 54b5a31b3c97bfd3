//! Limits of untrusted images.

use crate::error::ImageError;

/// The longest side of an image, as JPEG and GIF have it. A resize needs memory in proportion to a side.
const MAX_SIDE: u64 = 65_535;
/// The largest ratio of sides that [`Limits::largest_sides`] returns.
const MAX_RATIO: u64 = 8;
/// The sides that it returns are multiples of these. A processor that does not resize takes multiples of
/// its patches only.
const UNITS: [u64; 6] = [1, 14, 16, 28, 32, 48];

/// Limits of an image. They are checked before its pixels are decoded.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// The most bytes of an encoded image.
    pub max_bytes: usize,
    /// The most pixels of a decoded image. A pixel takes up to 16 bytes while it is decoded.
    pub max_pixels: u64,
    /// The most tiles or crops into which a processor cuts an image, the whole image included.
    pub max_tiles: usize,
}

/// Accepts or refuses the width and the height of an image.
pub(crate) type Accept<'a> = &'a dyn Fn(usize, usize) -> Result<(), ImageError>;

/// The rules for an image's header.
pub(super) struct HeaderRules<'a> {
    pub(super) limits: &'a Limits,
    pub(super) accept: Accept<'a>,
}

impl Default for Limits {
    /// 32 MiB, 33,554,432 pixels and 64 tiles.
    fn default() -> Self {
        Self { max_bytes: 32 << 20, max_pixels: 32 << 20, max_tiles: 64 }
    }
}

impl Limits {
    /// Returns the sides of images of about `max_pixels`, in many ratios.
    pub(crate) fn largest_sides(&self) -> impl Iterator<Item = [usize; 2]> {
        let pixels = self.max_pixels.clamp(1, MAX_SIDE * MAX_SIDE);
        let ratios = (1..=MAX_RATIO).flat_map(|width| (1..=MAX_RATIO).map(move |height| (width, height)));
        ratios.flat_map(move |(width, height)| {
            let width = (pixels * width / height).isqrt().clamp(1, MAX_SIDE.min(pixels));
            let height = (pixels / width).min(MAX_SIDE);
            UNITS.map(|unit| [width, height].map(|side| (side - side % unit) as usize))
        })
    }

    /// Checks the tiles of an image.
    pub(crate) fn check_tiles(&self, tiles: usize) -> Result<(), ImageError> {
        if tiles > self.max_tiles { Err(ImageError::Tiles { tiles, limit: self.max_tiles }) } else { Ok(()) }
    }
}

impl HeaderRules<'_> {
    /// Checks the sides that a header declares and returns them.
    pub(super) fn check(&self, width: impl Into<u64>, height: impl Into<u64>) -> Result<(usize, usize), ImageError> {
        let (width, height) = (width.into(), height.into());
        if width == 0 || height == 0 {
            return Err(ImageError::Empty { width, height });
        }
        if width.max(height) > MAX_SIDE {
            return Err(ImageError::Side { width, height, limit: MAX_SIDE });
        }
        let too_many = ImageError::Pixels { width, height, limit: self.limits.max_pixels };
        match width.checked_mul(height) {
            Some(pixels) if pixels <= self.limits.max_pixels => {}
            _ => return Err(too_many),
        }
        let side = |value| usize::try_from(value).map_err(|_| too_many.clone());
        let sides = (side(width)?, side(height)?);
        (self.accept)(sides.0, sides.1)?;
        Ok(sides)
    }

    /// Returns how many bytes a decoder may allocate.
    pub(super) fn memory(&self) -> usize {
        usize::try_from(self.limits.max_pixels.saturating_mul(16)).unwrap_or(usize::MAX)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_limit_of_pixels_is_checked_without_overflow() {
        let limits = Limits { max_bytes: 1, max_pixels: 6, max_tiles: 1 };
        let rules = HeaderRules { limits: &limits, accept: &|_, _| Ok(()) };
        assert_eq!(rules.check(2_u32, 3_u32), Ok((2, 3)));
        assert!(matches!(rules.check(2_u32, 4_u32), Err(ImageError::Pixels { limit: 6, .. })));
        assert!(matches!(rules.check(u64::MAX, 2_u32), Err(ImageError::Side { limit: 65_535, .. })));
        assert_eq!(rules.check(0_u32, 4_u32), Err(ImageError::Empty { width: 0, height: 4 }));
    }
}

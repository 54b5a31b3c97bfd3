//! Limits of untrusted images.

use crate::error::ImageError;

/// Limits of an image. They are checked before its pixels are decoded.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// The most bytes of an encoded image.
    pub max_bytes: usize,
    /// The most pixels of a decoded image. A pixel takes up to 16 bytes while it is decoded.
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
    pub(super) fn check(&self, width: impl Into<u64>, height: impl Into<u64>) -> Result<(usize, usize), ImageError> {
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
    pub(super) fn memory(&self) -> usize {
        usize::try_from(self.max_pixels.saturating_mul(16)).unwrap_or(usize::MAX)
    }
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
}

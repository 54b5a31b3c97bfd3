//! Resizing without weights: each result is one pixel of the source. The index of that pixel is
//! computed in 32-bit floats as libtorch computes it, whose rounding decides between neighbours.

use super::filter::Filter;
use crate::image::{CHANNELS, RgbImage};

/// The sum of the result's sides up to which libtorch computes the centers in another order.
const SMALL_SIDES: usize = 128;

/// Returns an image with the given sides.
pub(super) fn resize_nearest(image: &RgbImage, width: usize, height: usize, filter: Filter) -> RgbImage {
    let index: fn(usize, f32) -> f32 = match filter {
        Filter::NearestCorner => corner,
        _ if width + height <= SMALL_SIDES => small_center,
        _ => center,
    };
    let columns = indexes(image.width(), width, index);
    let stride = image.width() * CHANNELS;
    let mut bytes = Vec::with_capacity(width * height * CHANNELS);
    for row in indexes(image.height(), height, index) {
        let (pixels, _) = image.bytes()[row * stride..(row + 1) * stride].as_chunks::<CHANNELS>();
        bytes.extend(columns.iter().flat_map(|&column| pixels[column]));
    }
    RgbImage::new(width, height, bytes).expect("all pixels are there")
}

/// Returns the source pixel of each result pixel along an axis.
fn indexes(from: usize, to: usize, index: fn(usize, f32) -> f32) -> Vec<usize> {
    let scale = from as f32 / to as f32;
    (0..to).map(|place| (index(place, scale) as usize).min(from - 1)).collect()
}

fn corner(place: usize, scale: f32) -> f32 {
    place as f32 * scale
}

fn small_center(place: usize, scale: f32) -> f32 {
    ((place as f64 + 0.5) * f64::from(scale)) as f32
}

fn center(place: usize, scale: f32) -> f32 {
    let shifted = (place as f32 + 0.5).mul_add(scale, -0.5).max(0.0);
    (f64::from(shifted) + 0.5) as f32
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The expected indexes are torch 2.13's.
    #[test]
    fn centers_between_two_pixels_are_rounded_as_in_libtorch() {
        assert_eq!(indexes(2, 47, small_center)[22..25], [0, 0, 1]);
        assert_eq!(indexes(2, 219, center)[108..111], [0, 1, 1]);
        assert_eq!(indexes(4, 2, corner), [0, 2]);
        assert_eq!(indexes(4, 2, center), [1, 3]);
    }
}

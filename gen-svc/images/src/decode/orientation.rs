//! The EXIF orientation.

use image::metadata::Orientation;
use image::{DynamicImage, ImageBuffer};

use crate::image::RgbImage;

/// Returns `image` as the orientation in `exif` (TIFF structure) says, or unchanged without one.
pub(super) fn apply(image: RgbImage, exif: Option<&[u8]>) -> RgbImage {
    let orientation = exif.and_then(Orientation::from_exif_chunk).unwrap_or(Orientation::NoTransforms);
    if orientation == Orientation::NoTransforms { image } else { turn(&image, orientation) }
}

fn turn(image: &RgbImage, orientation: Orientation) -> RgbImage {
    let (width, height) = (image.width() as u32, image.height() as u32);
    let buffer = ImageBuffer::from_raw(width, height, image.bytes().to_vec()).expect("an image has all its bytes");
    let mut turned = DynamicImage::ImageRgb8(buffer);
    turned.apply_orientation(orientation);
    let (width, height) = (turned.width() as usize, turned.height() as usize);
    RgbImage::new(width, height, turned.into_bytes()).expect("an orientation keeps all pixels")
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A TIFF structure with one entry: the orientation.
    fn exif(orientation: u8) -> Vec<u8> {
        let mut bytes = b"MM\0\x2a\0\0\0\x08\0\x01\x01\x12\0\x03\0\0\0\x01\0".to_vec();
        bytes.extend([orientation, 0, 0, 0, 0, 0, 0]);
        bytes
    }

    #[test]
    fn all_eight_orientations_are_applied() {
        // 1 2 3
        // 4 5 6
        let image = || RgbImage::new(3, 2, (1..=6).flat_map(|value| [value; 3]).collect()).expect("six pixels");
        let expected = ["123456", "321654", "654321", "456123", "142536", "415263", "635241", "362514"];
        for (orientation, expected) in (1..).zip(expected) {
            let turned = apply(image(), Some(&exif(orientation)));
            let text: String = turned.bytes().iter().step_by(3).map(u8::to_string).collect();
            let width = if orientation < 5 { 3 } else { 2 };
            assert_eq!((text.as_str(), turned.width()), (expected, width), "orientation {orientation}");
        }
    }

    #[test]
    fn a_damaged_orientation_is_ignored() {
        for bytes in [&b""[..], b"MM\0\x2a", &exif(0), &exif(9), &exif(6)[..12]] {
            let image = RgbImage::new(2, 1, vec![1; 6]).expect("two pixels");
            assert_eq!(apply(image.clone(), Some(bytes)), image);
        }
    }
}

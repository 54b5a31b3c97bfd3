//! Resizing as torchvision does it on bytes. Antialiased, as in Pillow: integer weights, the width
//! before the height, and rounding to bytes between the two. Or the nearest pixel.

mod filter;
mod nearest;
mod passes;
mod sums;
mod transpose;
mod weights;

use std::borrow::Cow;

use crate::image::{CHANNELS, RgbImage};
pub use filter::Filter;
use nearest::resize_nearest;
use passes::{resize_columns, resize_rows};
use weights::Weights;

/// Returns `image` with the given sides. A side that keeps its length is not filtered. Neither
/// side may be zero.
#[must_use]
pub fn resize(image: &RgbImage, width: usize, height: usize, filter: Filter) -> Cow<'_, RgbImage> {
    if (width, height) == (image.width(), image.height()) {
        return Cow::Borrowed(image);
    }
    let Some(kernel) = filter.kernel() else {
        return Cow::Owned(resize_nearest(image, width, height, filter));
    };
    let mut bytes = Cow::Borrowed(image.bytes());
    if width != image.width() {
        let weights = Weights::new(image.width(), width, kernel);
        bytes = Cow::Owned(resize_rows(&bytes, image.width(), &weights));
    }
    if height != image.height() {
        let weights = Weights::new(image.height(), height, kernel);
        bytes = Cow::Owned(resize_columns(&bytes, width * CHANNELS, &weights));
    }
    Cow::Owned(RgbImage::new(width, height, bytes.into_owned()).expect("the passes return all pixels"))
}

//! Antialiased resizing as torchvision and Pillow do it on bytes: integer weights, the width before
//! the height, and rounding to bytes between the two.

mod filter;
mod passes;
mod sums;
mod transpose;
mod weights;

use std::borrow::Cow;

use crate::image::{CHANNELS, RgbImage};
pub use filter::Filter;
use passes::{resize_columns, resize_rows};
use weights::Weights;

/// Returns `image` with the given sides. A side that keeps its length is not filtered. Neither
/// side may be zero.
#[must_use]
pub fn resize(image: &RgbImage, width: usize, height: usize, filter: Filter) -> Cow<'_, RgbImage> {
    if (width, height) == (image.width(), image.height()) {
        return Cow::Borrowed(image);
    }
    let mut bytes = Cow::Borrowed(image.bytes());
    if width != image.width() {
        let weights = Weights::new(image.width(), width, filter);
        bytes = Cow::Owned(resize_rows(&bytes, image.width(), &weights));
    }
    if height != image.height() {
        let weights = Weights::new(image.height(), height, filter);
        bytes = Cow::Owned(resize_columns(&bytes, width * CHANNELS, &weights));
    }
    Cow::Owned(RgbImage::new(width, height, bytes.into_owned()).expect("the passes return all pixels"))
}

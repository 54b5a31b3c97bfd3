//! Resizing as torchvision does it on bytes. Antialiased, as in Pillow: integer weights, the width
//! before the height, and rounding to bytes between the two. Or the nearest pixel.

mod filter;
mod nearest;
mod passes;
mod recent;
mod sums;
mod transpose;
mod weights;

use std::borrow::Cow;
use std::convert::Infallible;

use crate::image::{CHANNELS, RgbImage};
pub use filter::Filter;
use nearest::resize_nearest;
use passes::{resize_both, resize_columns, resize_rows};

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
    let axis = |from, to| (from != to).then(|| recent::weights(from, to, kernel));
    let (columns, rows) = rayon::join(|| axis(image.width(), width), || axis(image.height(), height));
    let Ok(image) = RgbImage::written(width, height, |out| {
        match (&columns, &rows) {
            (Some(columns), Some(rows)) => resize_both(image.bytes(), image.width(), (columns, rows), out),
            (Some(columns), None) => resize_rows(image.bytes(), image.width(), columns, out),
            (None, Some(rows)) => resize_columns(image.bytes(), width * CHANNELS, rows, out),
            (None, None) => out.copy_from_slice(image.bytes()),
        }
        Ok::<_, Infallible>(())
    });
    Cow::Owned(image)
}

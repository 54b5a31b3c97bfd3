//! The interface of a family of models.

use std::fmt::Debug;
use std::sync::Arc;

use crate::error::ImageError;
use crate::image::RgbImage;
use crate::prepared::{ImagePlan, PixelBatch, PreparedImage};
use crate::values::ValueTable;

/// Returns the sides of an image that is not resized. They must be multiples of a cell.
pub(crate) fn whole_cells(width: usize, height: usize, cell: usize) -> Result<(usize, usize), ImageError> {
    if width.is_multiple_of(cell) && height.is_multiple_of(cell) {
        return Ok((width, height));
    }
    let problem = format!("it is not resized (do_resize), and each side must be a multiple of {cell} pixels");
    Err(ImageError::Unfit { width, height, problem })
}

/// How a family prepares images. `Debug` shows all settings, which the fingerprint is made of.
pub(crate) trait Recipe: Debug + Send + Sync {
    /// Returns the text that marks an image's place in a rendered prompt.
    fn placeholder(&self) -> &str;

    /// Returns the token that is replaced by rows of the projector's output.
    fn image_token(&self) -> &str;

    /// Returns true unless the sides of a prepared image are those of its file.
    fn resizes(&self) -> bool;

    /// Returns shape, arrangement and expansion of an image with these sides.
    fn plan(&self, width: usize, height: usize) -> Result<ImagePlan, ImageError>;

    /// Returns the value of each byte.
    fn values(&self) -> &Arc<ValueTable>;

    /// Returns the resized pixels, arranged as `plan` says, which succeeded for the image's sides.
    fn bytes(&self, image: &RgbImage) -> Result<Vec<u8>, ImageError>;

    /// Joins the images of a request. There is at least one.
    fn join(&self, images: &[&PreparedImage]) -> PixelBatch;
}

//! The preparation of a family of models, and the parts that it is made of.

use std::fmt::Debug;
use std::sync::Arc;

pub use crate::arrange::{write_patch, write_pixels, write_planes, write_tiles};
use crate::error::{ImageError, ProcessorError};
use crate::image::RgbImage;
pub use crate::image::{Area, CHANNELS, grid};
pub use crate::parallel::in_parts;
use crate::prepared::ImagePlan;
use crate::resize::Filter;
pub use crate::settings::{CLIP, Defaults, HALF, Section, Settings, check_area, refused};
pub use crate::values::{Normal, ValueTable};

/// Returns the sides of an image that is not resized. They must be multiples of a cell.
pub fn whole_cells(width: usize, height: usize, cell: usize) -> Result<(usize, usize), ImageError> {
    if width.is_multiple_of(cell) && height.is_multiple_of(cell) {
        return Ok((width, height));
    }
    let problem = format!("it is not resized (do_resize), and each side must be a multiple of {cell} pixels");
    Err(ImageError::Unfit { width, height, problem })
}

/// How a family prepares images. `Debug` shows all settings, which the fingerprint is made of.
pub trait Recipe: Debug + Send + Sync {
    /// Returns the settings that every recipe has.
    fn basics(&self) -> &Basics;

    /// Returns shape, arrangement and expansion of an image with these sides.
    fn plan(&self, width: usize, height: usize) -> Result<ImagePlan, ImageError>;

    /// Returns the resized pixels, arranged as `plan` says, which succeeded for the image's sides.
    fn bytes(&self, image: &RgbImage) -> Result<Vec<u8>, ImageError>;
}

/// The settings that every recipe has.
#[derive(Debug)]
pub struct Basics {
    /// True unless the sides of a prepared image are those of its file.
    pub resizes: bool,
    pub filter: Filter,
    /// The value of each byte.
    pub values: Arc<ValueTable>,
    /// The text that marks an image's place in a rendered prompt.
    pub placeholder: String,
    /// The token that is replaced by rows of the projector's output.
    pub image_token: String,
}

impl Basics {
    /// Reads the settings. The image token is also the placeholder.
    pub fn read(settings: &Settings, defaults: Defaults, image_token: String) -> Result<Self, ProcessorError> {
        let (filter, values) = settings.image.pixels(defaults)?;
        let resizes = settings.image.flag("do_resize", true)?;
        Ok(Self { resizes, filter, values, placeholder: image_token.clone(), image_token })
    }
}

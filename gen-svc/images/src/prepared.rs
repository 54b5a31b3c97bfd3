//! The results of a processor.

use std::sync::Arc;

use crate::error::ImageError;
use crate::image::CHANNELS;
use crate::values::ValueTable;

/// The text that replaces an image's placeholder.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Expansion {
    pub text: String,
    /// How many image tokens it contains. Each takes one row of the projector's output.
    pub tokens: usize,
}

/// How an image's pixel values are arranged, as a tower needs it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Layout {
    /// Square tiles in raster order, then the whole image if there is more than one tile.
    /// `rows` and `columns` are zero if only the whole image is there.
    Tiles { rows: usize, columns: usize },
    /// The whole image, then its crops.
    Crops { crops: usize },
    /// Patches in raster order, `rows` x `columns`. Each patch is by row, column and channel. A
    /// patch's position is (column, row).
    Patches { rows: usize, columns: usize },
    /// Patches in the order of merged blocks: block row, block column, row in the block, column in
    /// the block. Each patch is by channel, time, row and column. The numbers count patches.
    Grid { time: usize, rows: usize, columns: usize },
    /// One image by channel, row and column, without padding. The numbers are pixels.
    Whole { height: usize, width: usize },
}

/// The facts that an image's sides alone determine.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ImagePlan {
    /// The shape of the pixel values.
    pub shape: Vec<usize>,
    /// Their arrangement.
    pub layout: Layout,
    /// The text that replaces the placeholder.
    pub expansion: Expansion,
}

impl ImagePlan {
    /// Returns the number of tiles or crops, the whole image included. 1: the image is not cut.
    #[must_use]
    pub fn tiles(&self) -> usize {
        match self.layout {
            Layout::Tiles { rows, columns } if rows * columns > 1 => rows * columns + 1,
            Layout::Crops { crops } => crops + 1,
            _ => 1,
        }
    }

    /// Returns how many values of one channel are adjacent.
    fn channel_run(&self) -> usize {
        match (&self.layout, self.shape.as_slice()) {
            (Layout::Patches { .. }, _) => 1,
            (Layout::Grid { .. }, [.., length]) => length / CHANNELS,
            (_, [.., height, width]) => height * width,
            _ => 1,
        }
    }
}

/// An image as its tower takes it. It depends on no other image of the request.
#[derive(Debug, Clone, PartialEq)]
pub struct PreparedImage {
    /// Shape, arrangement and expansion.
    pub plan: ImagePlan,
    /// The pixels before scaling and normalization, arranged as the plan says: a quarter of the
    /// memory of their values.
    pub(crate) bytes: Vec<u8>,
    pub(crate) values: Arc<ValueTable>,
}

impl PreparedImage {
    /// Returns the pixel values, flat.
    #[must_use]
    pub fn pixels(&self) -> Vec<f32> {
        let mut out = vec![0.0; self.bytes.len()];
        self.values.write(&self.bytes, self.plan.channel_run(), &mut out);
        out
    }
}

/// The images of a request, in the order of their placeholders.
#[derive(Debug, Clone)]
pub struct Prepared {
    /// The text that marks an image's place in the rendered prompt.
    pub placeholder: String,
    /// The images. The same image may be there more than once.
    pub images: Vec<Arc<PreparedImage>>,
}

impl Prepared {
    /// Replaces the placeholders of `prompt`.
    pub fn expand(&self, prompt: &str) -> Result<crate::Expanded, ImageError> {
        let texts: Vec<&str> = self.images.iter().map(|image| image.plan.expansion.text.as_str()).collect();
        crate::expand(prompt, &self.placeholder, &texts)
    }
}

/// The pixel values of a request in one tensor, as transformers returns them.
#[derive(Debug, Clone, PartialEq)]
pub struct PixelBatch {
    pub shape: Vec<usize>,
    /// The values, flat.
    pub pixels: Vec<f32>,
    /// The (column, row) of each patch of [`Layout::Patches`], (-1, -1) for padding. Else empty.
    pub positions: Vec<[i64; 2]>,
}

/// Appends the images along their first dimension. `shape` is that of one element of it.
pub(crate) fn concatenate(images: &[&PreparedImage], leading: &[usize], element: &[usize]) -> PixelBatch {
    let count = images.iter().map(|image| image.plan.shape[0]).sum();
    let shape = leading.iter().copied().chain([count]).chain(element.iter().copied()).collect();
    let pixels = images.iter().flat_map(|image| image.pixels()).collect();
    PixelBatch { shape, pixels, positions: Vec::new() }
}

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

impl Expansion {
    /// Returns consecutive image tokens between two texts.
    #[must_use]
    pub fn new(begin: &str, image_token: &str, tokens: usize, end: &str) -> Self {
        Self { text: format!("{begin}{}{end}", image_token.repeat(tokens)), tokens }
    }
}

/// How an image's pixel values are arranged, as a tower needs it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Layout {
    /// Tiles of equal sides, the whole image included.
    Tiles,
    /// The whole image, then its crops. Their patches are taken as a square, if they are as many.
    Crops,
    /// Patches in raster order, `rows` x `columns`. Each patch is by row, column and channel. A
    /// patch's position is (column, row).
    Patches { rows: usize, columns: usize },
    /// Patches in the order of merged blocks: block row, block column, row in the block, column in
    /// the block. Each patch is by channel, time, row and column. The numbers count patches.
    Grid { time: usize, rows: usize, columns: usize },
    /// One image by channel, row and column, without padding. The numbers are pixels.
    Whole { height: usize, width: usize },
}

/// The rows of the projector's output that image tokens take, if they are not all rows in order.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Order {
    /// The number of rows of all tiles.
    pub rows: usize,
    /// The row of each image token. The row after the last one is the tower's own vector.
    pub places: Vec<u32>,
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
    /// The rows that its image tokens take. `None`: all rows in order.
    pub order: Option<Order>,
}

impl ImagePlan {
    /// Returns a plan whose image tokens take all rows in order.
    #[must_use]
    pub fn new(shape: Vec<usize>, layout: Layout, expansion: Expansion) -> Self {
        Self { shape, layout, expansion, order: None }
    }

    /// Returns the number of tiles or crops, the whole image included. 1: the image is not cut.
    #[must_use]
    pub fn tiles(&self) -> usize {
        match self.layout {
            Layout::Tiles | Layout::Crops => self.shape[0],
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

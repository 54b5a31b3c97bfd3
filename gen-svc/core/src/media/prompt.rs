//! A prompt with images.

use std::sync::Arc;

use tandem_images::PreparedImage;

use super::axes::AxisPositions;
use crate::cache::ImageSpan;

/// A prompt with images.
#[derive(Debug)]
pub struct MediaPrompt {
    /// The token ids, with each image's tokens.
    pub ids: Vec<u32>,
    /// The images.
    pub media: PromptMedia,
}

/// The images of a prompt.
#[derive(Debug)]
pub struct PromptMedia {
    /// The images, in the order of the prompt.
    pub images: Vec<Arc<PreparedImage>>,
    /// The tokens of the images, in order and disjoint.
    pub spans: Vec<ImageSpan>,
    /// The positions of all tokens, if the model has three axes.
    pub positions: Option<AxisPositions>,
    /// True if the tokens of a span attend to each other in both directions.
    pub is_mutual: bool,
}

impl PromptMedia {
    /// Returns the number of image tokens.
    #[must_use]
    pub fn tokens(&self) -> usize {
        self.spans.iter().map(|span| span.positions.len()).sum()
    }

    /// Returns the span that contains a position.
    #[must_use]
    pub fn span_at(&self, position: usize) -> Option<&ImageSpan> {
        let after = self.spans.partition_point(|span| span.positions.end <= position);
        self.spans.get(after).filter(|span| span.positions.contains(&position))
    }
}

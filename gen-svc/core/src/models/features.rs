//! The features of an image.

use std::ops::Range;

/// The features of an image, as the text model takes them.
#[derive(Debug, Clone, PartialEq)]
pub struct Features {
    /// E.
    pub width: usize,
    /// `[n, E]`, a row for each image token.
    pub rows: Vec<f32>,
    /// `[n, E]` each: the features that are added after the first layers.
    pub deep: Vec<Vec<f32>>,
}

impl Features {
    /// Returns the number of rows.
    #[must_use]
    pub fn count(&self) -> usize {
        self.rows.len() / self.width.max(1)
    }

    /// Returns some rows.
    #[must_use]
    pub fn rows(&self, rows: Range<usize>) -> &[f32] {
        &self.rows[rows.start * self.width..rows.end * self.width]
    }

    /// Returns some rows of the features of each layer.
    #[must_use]
    pub fn deep(&self, rows: Range<usize>) -> Vec<&[f32]> {
        self.deep.iter().map(|deep| &deep[rows.start * self.width..rows.end * self.width]).collect()
    }

    /// Returns the size in bytes.
    #[must_use]
    pub fn bytes(&self) -> usize {
        size_of_val(self.rows.as_slice()) * (1 + self.deep.len())
    }
}

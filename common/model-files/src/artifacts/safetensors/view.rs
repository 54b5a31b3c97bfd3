//! Tensors in a safetensors file.

use std::ops::Range;

use crate::source_file::FileBytes;

/// A tensor in a file.
#[derive(Debug, Clone)]
pub struct TensorView<'a> {
    /// The format's name of the number type, such as `BF16`.
    pub dtype: &'a str,
    /// The dimensions, outermost first.
    pub shape: &'a [usize],
    /// The numbers: row-major, little-endian, not aligned. For a known dtype the length matches
    /// `shape`.
    pub data: FileBytes<'a>,
}

/// The location of a tensor.
#[derive(Debug, Clone)]
pub(super) struct Entry {
    pub(super) dtype: String,
    pub(super) shape: Vec<usize>,
    /// Byte range in the file.
    pub(super) range: Range<u64>,
}

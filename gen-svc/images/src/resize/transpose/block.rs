//! The size of a block.

/// How many rows the first pass filters at once. They are transposed first, so that each source
/// pixel is one run of `CHANNELS * BLOCK_ROWS` bytes.
pub(in crate::resize) const BLOCK_ROWS: usize = 32;

//! Sizes and types that instructions and memory layouts share.

/// Lanes of a vector, and rows of a panel.
pub(crate) const LANES: usize = 8;
/// Lanes of a wide vector.
pub(crate) const WIDE: usize = 2 * LANES;
/// Columns of a block: they share a scale.
pub(crate) const BLOCK: usize = 32;
/// Rows of a tile.
pub(crate) const TILE_ROWS: usize = 16;
/// Two columns of a row, as bf16.
pub(crate) type Pair = [u16; 2];

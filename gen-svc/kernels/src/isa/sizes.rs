//! Sizes that instructions and layouts share.

/// Lanes of a vector.
pub(crate) const LANES: usize = 8;
/// Lanes of a wide vector.
pub(crate) const WIDE: usize = 2 * LANES;
/// Columns that share a scale.
pub(crate) const BLOCK: usize = 32;
/// Rows of a tile.
pub(crate) const TILE_ROWS: usize = 16;

//! The blocks of one sequence.

/// Number of positions in a block. Each position is one token. The kernels' KV cache fixes it.
pub const BLOCK: usize = tandem_kernels::POSITIONS;

/// The index of a block.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct BlockId(pub u32);

/// The blocks of one sequence, in the order of its positions.
#[derive(Debug, Default)]
pub struct BlockTable {
    pub(super) blocks: Vec<BlockId>,
    /// The number of first blocks that are in the prefix cache.
    pub(super) committed: usize,
}

impl BlockTable {
    /// Returns the blocks in the order of positions: block i has the positions from i * [`BLOCK`].
    #[must_use]
    pub fn blocks(&self) -> &[BlockId] {
        &self.blocks
    }

    /// Returns the number of positions in the blocks.
    #[must_use]
    pub fn capacity(&self) -> usize {
        self.blocks.len() * BLOCK
    }

    /// Returns the number of additional blocks that `positions` need.
    #[must_use]
    pub fn missing_blocks(&self, positions: usize) -> usize {
        positions.div_ceil(BLOCK).saturating_sub(self.blocks.len())
    }
}

//! Which sequence holds which block of the key/value memory, and which blocks hold tokens that another sequence may reuse.
//!
//! Only numbers: the memory itself is the model's. A block belongs to the sequences that hold it. Once all its positions are
//! computed it never changes again, so it can be found by what it holds: the tokens in it and the block before it, back to the
//! start of the prompt. What nobody holds stays until its room is needed; what was used last goes last.

mod pool;

pub use pool::{BlockPool, Usage};

/// Positions in a block.
pub const BLOCK: usize = 16;

/// The number of a block.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct BlockId(pub u32);

/// The blocks of one sequence, in the order of its positions.
#[derive(Debug, Default)]
pub struct BlockTable {
    blocks: Vec<BlockId>,
    /// How many of the first blocks can be found by what they hold.
    known: usize,
}

impl BlockTable {
    /// In the order of positions: block i holds those from i * [`BLOCK`].
    #[must_use]
    pub fn blocks(&self) -> &[BlockId] {
        &self.blocks
    }

    /// Positions that there is room for.
    #[must_use]
    pub fn capacity(&self) -> usize {
        self.blocks.len() * BLOCK
    }

    /// Blocks that are missing_blocks for `positions`.
    #[must_use]
    pub fn missing_blocks(&self, positions: usize) -> usize {
        positions.div_ceil(BLOCK).saturating_sub(self.blocks.len())
    }
}

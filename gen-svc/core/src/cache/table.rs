//! The blocks of one sequence.

/// Number of positions in a part of a block: prefixes are found in multiples of it. The kernels' KV
/// cache fixes it. A block on the CPU has one part.
pub const BLOCK: usize = tandem_kernels::POSITIONS;

/// The index of a block.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct BlockId(pub u32);

/// A part of a block, in one generation of the block's content.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct Part {
    pub(super) block: BlockId,
    pub(super) generation: u64,
    /// The index of the part in the block.
    pub(super) index: usize,
}

/// The copy of a block's first positions to another block.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BlockCopy {
    /// The block with the keys and values.
    pub from: BlockId,
    /// The block without.
    pub to: BlockId,
    /// The number of positions.
    pub positions: usize,
}

/// The first positions of a block that are found in another block.
#[derive(Debug, Clone, Copy)]
pub(super) struct Source {
    pub(super) block: BlockId,
    /// The index in the table of the block that they are copied to.
    pub(super) at: usize,
    pub(super) positions: usize,
}

/// The blocks of one sequence, in the order of its positions.
#[derive(Debug, Default)]
pub struct BlockTable {
    pub(super) blocks: Vec<BlockId>,
    /// The number of first parts that are in the prefix cache.
    pub(super) committed: usize,
    /// The last of them. It may be in the block of another sequence, with the same content.
    pub(super) last: Option<Part>,
    /// The positions that are not copied yet. The table references their block.
    pub(super) source: Option<Source>,
}

impl BlockTable {
    /// Returns the blocks in the order of positions.
    #[must_use]
    pub fn blocks(&self) -> &[BlockId] {
        &self.blocks
    }

    /// Returns the copy that must precede the next token. `None`: there is none, or the block is not
    /// reserved.
    #[must_use]
    pub fn copy(&self) -> Option<BlockCopy> {
        let Source { block: from, at, positions } = self.source?;
        Some(BlockCopy { from, to: *self.blocks.get(at)?, positions })
    }
}

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

/// The index of a slot for the recurrent state of a sequence.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct StateId(pub u32);

/// The recurrent states of a chunk: where its computation starts, and where its results are kept.
#[derive(Debug, Clone, Copy)]
pub struct ChunkStates<'a> {
    /// The state of the tokens before the chunk. `None`: there are none, so the state is zeros.
    pub from: Option<StateId>,
    /// Receives the state after the last token.
    pub to: StateId,
    /// Receive states after earlier tokens, in ascending order.
    pub saves: &'a [StateSave],
}

/// A state that is kept while a chunk is computed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StateSave {
    /// The number of the sequence's first tokens that the state has seen.
    pub tokens: usize,
    /// Receives the state.
    pub state: StateId,
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
    /// The slot of the sequence's state, in models that have such.
    pub(super) state: Option<StateId>,
    /// The kept state from which the next chunk starts, and its part. It is pinned.
    pub(super) start: Option<(Part, StateId)>,
    /// The slots that the next chunk fills, for parts that are not committed yet.
    pub(super) saves: Vec<StateSave>,
    /// The numbers of first tokens whose state later prompts probably need.
    pub(super) wanted: [usize; 2],
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

    /// Returns the recurrent states of the next chunk, which follows `past` tokens. `None`: the model has none.
    #[must_use]
    pub fn states(&self, past: usize) -> Option<ChunkStates<'_>> {
        let to = self.state?;
        let own = (past > 0).then_some(to);
        let from = self.start.map_or(own, |(_, state)| Some(state));
        Some(ChunkStates { from, to, saves: &self.saves })
    }
}

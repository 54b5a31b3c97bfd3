//! All blocks: who holds them, what they hold, and which may be taken.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use super::{BLOCK, BlockId, BlockTable};

/// What a block is found by. Keys are compared whole, so blocks of different histories never meet.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct Key {
    before: Before,
    tokens: [u32; BLOCK],
}

/// What stands before a block.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
enum Before {
    /// Nothing, for requests of this salt.
    Start(Arc<str>),
    /// Another block, as it was filled the n-th time.
    Block(BlockId, u64),
}

#[derive(Debug, Default)]
struct Block {
    /// Sequences that hold it.
    holders: u32,
    /// Set while it can be found.
    key: Option<Key>,
    /// Counts what it held: what was said to stand before others is only that as long as this is the same.
    fill: u64,
    /// When it was last let go of. Its place in the order of eviction.
    released: u64,
}

/// How the blocks are used.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Usage {
    /// All there are.
    pub total: usize,
    /// Held by a sequence.
    pub held: usize,
    /// Held by none, but kept to be found.
    pub kept: usize,
}

/// All blocks of a model's key/value memory.
#[derive(Debug)]
pub struct BlockPool {
    blocks: Vec<Block>,
    /// Held by none and not to be found.
    free: Vec<BlockId>,
    /// Held by none but to be found, by when they were let go of.
    kept: BTreeMap<u64, BlockId>,
    found: HashMap<Key, BlockId>,
    clock: u64,
}

impl BlockPool {
    /// A pool of `count` blocks, all free.
    #[must_use]
    pub fn new(count: u32) -> Self {
        Self {
            blocks: (0..count).map(|_| Block::default()).collect(),
            free: (0..count).rev().map(BlockId).collect(),
            kept: BTreeMap::new(),
            found: HashMap::new(),
            clock: 0,
        }
    }

    /// How the blocks are used now.
    #[must_use]
    pub fn usage(&self) -> Usage {
        let (total, kept) = (self.blocks.len(), self.kept.len());
        Usage { total, held: total - kept - self.free.len(), kept }
    }

    /// Blocks that nobody holds.
    #[must_use]
    pub fn available(&self) -> usize {
        self.free.len() + self.kept.len()
    }

    /// Takes hold of every block that holds the start of `tokens`: the longest there is, but never the last token, which must be
    /// computed for something to follow it. Only what requests of the same salt computed is found.
    pub fn find(&mut self, salt: &Arc<str>, tokens: &[u32]) -> BlockTable {
        let mut table = BlockTable::default();
        let mut before = Before::Start(Arc::clone(salt));
        for chunk in tokens[..tokens.len().saturating_sub(1)].chunks_exact(BLOCK) {
            let Some(&id) = self.found.get(&key(before, chunk)) else { break };
            self.hold(id);
            table.blocks.push(id);
            before = self.after(id);
        }
        table.known = table.blocks.len();
        table
    }

    /// Gives the table blocks for `positions`, forgetting what was kept longest where nothing is free. All or none.
    #[must_use]
    pub fn reserve(&mut self, table: &mut BlockTable, positions: usize) -> bool {
        let missing_blocks = table.missing_blocks(positions);
        if missing_blocks > self.available() {
            return false;
        }
        for _ in 0..missing_blocks {
            let Some(id) = self.free.pop().or_else(|| self.evict()) else { return false };
            self.blocks[id.0 as usize].holders = 1;
            table.blocks.push(id);
        }
        true
    }

    /// Lets the blocks be found that are full now that the first `computed` of `tokens` are computed. One that holds what another
    /// holds already is given up for that.
    pub fn commit(&mut self, table: &mut BlockTable, salt: &Arc<str>, tokens: &[u32], computed: usize) {
        while (table.known + 1) * BLOCK <= computed {
            let at = table.known;
            let before = match at.checked_sub(1) {
                None => Before::Start(Arc::clone(salt)),
                Some(last) => self.after(table.blocks[last]),
            };
            let key = key(before, &tokens[at * BLOCK..(at + 1) * BLOCK]);
            table.blocks[at] = self.deduplicate(table.blocks[at], key);
            table.known += 1;
        }
    }

    /// Lets go of all the table's blocks. What can be found stays, the start of the sequence longest.
    pub fn release(&mut self, table: &mut BlockTable) {
        for id in std::mem::take(&mut table.blocks).into_iter().rev() {
            self.release_block(id);
        }
        table.known = 0;
    }

    /// Forgets everything that nobody holds. Gives how many blocks that were.
    pub fn clear(&mut self) -> usize {
        let kept = self.kept.len();
        while let Some(id) = self.evict() {
            self.free.push(id);
        }
        kept
    }

    /// The block that holds what `key` says: the one that did so first.
    fn deduplicate(&mut self, id: BlockId, key: Key) -> BlockId {
        if let Some(&known) = self.found.get(&key) {
            self.hold(known);
            self.release_block(id);
            return known;
        }
        self.blocks[id.0 as usize].key = Some(key.clone());
        self.found.insert(key, id);
        id
    }

    fn after(&self, id: BlockId) -> Before {
        Before::Block(id, self.blocks[id.0 as usize].fill)
    }

    fn hold(&mut self, id: BlockId) {
        let block = &mut self.blocks[id.0 as usize];
        if block.holders == 0 {
            self.kept.remove(&block.released);
        }
        block.holders += 1;
    }

    fn release_block(&mut self, id: BlockId) {
        let block = &mut self.blocks[id.0 as usize];
        block.holders -= 1;
        if block.holders > 0 {
            return;
        }
        if block.key.is_none() {
            block.fill += 1;
            self.free.push(id);
            return;
        }
        self.clock += 1;
        block.released = self.clock;
        self.kept.insert(self.clock, id);
    }

    /// Forgets the block that was let go of first.
    fn evict(&mut self) -> Option<BlockId> {
        let (_, id) = self.kept.pop_first()?;
        let block = &mut self.blocks[id.0 as usize];
        block.fill += 1;
        if let Some(key) = block.key.take() {
            self.found.remove(&key);
        }
        Some(id)
    }
}

fn key(before: Before, tokens: &[u32]) -> Key {
    let mut key = Key { before, tokens: [0; BLOCK] };
    key.tokens.copy_from_slice(tokens);
    key
}

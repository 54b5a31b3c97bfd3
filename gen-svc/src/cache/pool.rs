//! All blocks: their references, their content, and the order of eviction.

use std::collections::{BTreeMap, HashMap};
use std::ops::Range;
use std::sync::Arc;

use super::table::{BLOCK, BlockId, BlockTable};

/// The content of a block in the prefix cache. Whole keys are compared, so that different prompts
/// never share a block.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct Key {
    prefix: Prefix,
    tokens: [u32; BLOCK],
    /// The images whose tokens are in the block: their ids are the same for every image.
    images: Box<[ImagePart]>,
}

/// The tokens of one image in a block.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct ImagePart {
    /// The place of the first of them in the block.
    at: usize,
    /// The row of the image's features that it takes.
    row: usize,
    digest: Digest,
}

/// A SHA-256 of an image.
pub type Digest = [u8; 32];

/// Consecutive tokens of one image in a prompt.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ImageSpan {
    /// Their positions.
    pub positions: Range<usize>,
    /// The row of the image's features that the first of them takes.
    pub first_row: usize,
    /// The index of the image in its request.
    pub image: usize,
    /// The digest of the image and of its preparation.
    pub digest: Digest,
}

/// A prompt and the tokens after it, as the prefix cache identifies them.
#[derive(Debug, Clone, Copy)]
pub struct Content<'a> {
    /// Only blocks of the same salt are found.
    pub salt: &'a Arc<str>,
    /// The tokens.
    pub tokens: &'a [u32],
    /// The images among the tokens, in order and disjoint.
    pub images: &'a [ImageSpan],
}

/// The positions before a block.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
enum Prefix {
    /// No positions: the start of a prompt with this cache salt.
    Start(Arc<str>),
    /// Another block, in this generation of its content.
    Block(BlockId, u64),
}

#[derive(Debug, Default)]
struct Block {
    /// Sequences that reference it.
    references: u32,
    /// Set while it is in the prefix cache.
    key: Option<Key>,
    /// Increases with each new content, which invalidates the keys of the blocks that follow it.
    generation: u64,
    /// The time of the last release on the pool's clock.
    released: u64,
}

/// The use of the blocks.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Usage {
    /// All blocks.
    pub total: usize,
    /// Blocks that a sequence references.
    pub held: usize,
    /// Unreferenced blocks in the prefix cache.
    pub kept: usize,
}

/// All blocks of the KV cache.
#[derive(Debug)]
pub struct BlockPool {
    blocks: Vec<Block>,
    /// Blocks without references and without a key.
    free: Vec<BlockId>,
    /// Unreferenced blocks in the prefix cache, by the time of their release.
    kept: BTreeMap<u64, BlockId>,
    /// The cached blocks by their content.
    by_content: HashMap<Key, BlockId>,
    clock: u64,
}

impl BlockPool {
    /// Creates a pool of `count` free blocks.
    #[must_use]
    pub fn new(count: u32) -> Self {
        Self {
            blocks: (0..count).map(|_| Block::default()).collect(),
            free: (0..count).rev().map(BlockId).collect(),
            kept: BTreeMap::new(),
            by_content: HashMap::new(),
            clock: 0,
        }
    }

    /// Returns the current use of the blocks.
    #[must_use]
    pub fn usage(&self) -> Usage {
        let (total, kept) = (self.blocks.len(), self.kept.len());
        Usage { total, held: total - kept - self.free.len(), kept }
    }

    /// Returns the number of unreferenced blocks.
    #[must_use]
    pub fn available(&self) -> usize {
        self.free.len() + self.kept.len()
    }

    /// References the blocks of the longest cached prefix of `content`. The last token is never part
    /// of it, because its logits are needed.
    pub fn find(&mut self, content: Content<'_>) -> BlockTable {
        let mut table = BlockTable::default();
        let mut prefix = Prefix::Start(Arc::clone(content.salt));
        for at in 0..content.tokens.len().saturating_sub(1) / BLOCK {
            let Some(&id) = self.by_content.get(&content.key(prefix, at)) else { break };
            self.reference(id);
            table.blocks.push(id);
            prefix = self.after(id);
        }
        table.committed = table.blocks.len();
        table
    }

    /// Gives the table blocks for `positions`, and evicts where no block is free. Returns false,
    /// and changes nothing, if there are too few blocks.
    #[must_use]
    pub fn reserve(&mut self, table: &mut BlockTable, positions: usize) -> bool {
        let missing = table.missing_blocks(positions);
        if missing > self.available() {
            return false;
        }
        for _ in 0..missing {
            let Some(id) = self.free.pop().or_else(|| self.evict()) else { return false };
            self.blocks[id.0 as usize].references = 1;
            table.blocks.push(id);
        }
        true
    }

    /// Releases the blocks after the first `count`.
    pub fn shorten(&mut self, table: &mut BlockTable, count: usize) {
        for id in table.blocks.split_off(count.min(table.blocks.len())).into_iter().rev() {
            self.release_block(id);
        }
        table.committed = table.committed.min(count);
    }

    /// Adds to the prefix cache the blocks that are full once the first `computed` tokens of `content`
    /// are computed. A block whose content is cached already is replaced by the cached one.
    pub fn commit(&mut self, table: &mut BlockTable, content: Content<'_>, computed: usize) {
        while (table.committed + 1) * BLOCK <= computed {
            let at = table.committed;
            let prefix = match at.checked_sub(1) {
                None => Prefix::Start(Arc::clone(content.salt)),
                Some(last) => self.after(table.blocks[last]),
            };
            let key = content.key(prefix, at);
            table.blocks[at] = self.deduplicate(table.blocks[at], key);
            table.committed += 1;
        }
    }

    /// Releases all blocks of the table. Cached ones are evicted later, the start of the prompt
    /// last.
    pub fn release(&mut self, table: &mut BlockTable) {
        for id in std::mem::take(&mut table.blocks).into_iter().rev() {
            self.release_block(id);
        }
        table.committed = 0;
    }

    /// Evicts all unreferenced blocks. Returns their number.
    pub fn clear(&mut self) -> usize {
        let kept = self.kept.len();
        while let Some(id) = self.evict() {
            self.free.push(id);
        }
        kept
    }

    /// Returns the cached block with this content, which is `id` itself if there was none.
    fn deduplicate(&mut self, id: BlockId, key: Key) -> BlockId {
        if let Some(&cached) = self.by_content.get(&key) {
            self.reference(cached);
            self.release_block(id);
            return cached;
        }
        self.blocks[id.0 as usize].key = Some(key.clone());
        self.by_content.insert(key, id);
        id
    }

    fn after(&self, id: BlockId) -> Prefix {
        Prefix::Block(id, self.blocks[id.0 as usize].generation)
    }

    fn reference(&mut self, id: BlockId) {
        let block = &mut self.blocks[id.0 as usize];
        if block.references == 0 {
            self.kept.remove(&block.released);
        }
        block.references += 1;
    }

    fn release_block(&mut self, id: BlockId) {
        let block = &mut self.blocks[id.0 as usize];
        block.references -= 1;
        if block.references > 0 {
            return;
        }
        if block.key.is_none() {
            block.generation += 1;
            self.free.push(id);
            return;
        }
        self.clock += 1;
        block.released = self.clock;
        self.kept.insert(self.clock, id);
    }

    /// Evicts the block that was released first.
    fn evict(&mut self) -> Option<BlockId> {
        let (_, id) = self.kept.pop_first()?;
        let block = &mut self.blocks[id.0 as usize];
        block.generation += 1;
        if let Some(key) = block.key.take() {
            self.by_content.remove(&key);
        }
        Some(id)
    }
}

impl Content<'_> {
    /// Returns the key of block number `at`, whose tokens are all there.
    fn key(&self, prefix: Prefix, at: usize) -> Key {
        let block = at * BLOCK..(at + 1) * BLOCK;
        let first = self.images.partition_point(|span| span.positions.end <= block.start);
        let spans = self.images[first..].iter().take_while(|span| span.positions.start < block.end);
        let mut key = Key { prefix, tokens: [0; BLOCK], images: spans.map(|span| span.part(block.start)).collect() };
        key.tokens.copy_from_slice(&self.tokens[block]);
        key
    }
}

impl ImageSpan {
    /// Returns the part in the block that starts at position `block`, which the span reaches.
    fn part(&self, block: usize) -> ImagePart {
        let start = self.positions.start.max(block);
        ImagePart { at: start - block, row: self.first_row + start - self.positions.start, digest: self.digest }
    }
}

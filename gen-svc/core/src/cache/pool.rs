//! All blocks: their references, their content, and the order of eviction.

use std::collections::{BTreeMap, HashMap};
use std::ops::Range;

use super::content::{Content, Key, Prefix};
use super::states::{StateUsage, States};
use super::table::{BLOCK, BlockId, BlockTable, Part, Source, StateSave};

#[derive(Debug, Default)]
struct Block {
    /// Sequences that reference it.
    references: u32,
    /// The keys under which its parts are in the prefix cache.
    keys: Vec<Key>,
    /// The index after the last of these parts.
    end: usize,
    /// Increases with each new content, which invalidates the keys of the parts that follow it.
    generation: u64,
    /// The time of the last release on the pool's clock.
    released: u64,
}

/// The size of the caches.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CacheSize {
    /// The blocks of keys and values.
    pub blocks: u32,
    /// The slots of recurrent states. 0 for models without such.
    pub states: u32,
}

impl CacheSize {
    /// Returns the size of a model without recurrent states.
    #[must_use]
    pub fn of_blocks(blocks: u32) -> Self {
        Self { blocks, states: 0 }
    }
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
    /// The positions of a block.
    pub positions: usize,
}

/// The cached parts of the start of a prompt.
#[derive(Debug)]
pub struct Found {
    parts: Vec<Part>,
    /// The numbers of first parts after which the state is kept. `None`: the model has no recurrent states.
    ends: Option<Vec<usize>>,
    /// The numbers of first tokens whose state later prompts probably need.
    wanted: [usize; 2],
}

impl Found {
    /// Returns the number of positions.
    #[must_use]
    pub fn positions(&self) -> usize {
        self.parts.len() * BLOCK
    }

    /// Removes the parts that end after this number of positions, and those before them up to one after which the
    /// state is kept.
    pub fn truncate(&mut self, positions: usize) {
        let mut count = positions / BLOCK;
        if let Some(ends) = &mut self.ends {
            ends.retain(|end| *end <= count);
            count = ends.last().copied().unwrap_or(0);
        }
        self.parts.truncate(count);
    }
}

/// All blocks of the KV cache.
#[derive(Debug)]
pub struct BlockPool {
    blocks: Vec<Block>,
    /// The parts of a block.
    parts: usize,
    /// Blocks without references and without a key.
    free: Vec<BlockId>,
    /// Unreferenced blocks in the prefix cache, by the time of their release.
    kept: BTreeMap<u64, BlockId>,
    /// The cached parts by their content. The block of a part also has the parts before it.
    by_content: HashMap<Key, Part>,
    clock: u64,
    states: States,
    /// The number of tokens between two kept states of a long prompt.
    state_interval: usize,
}

impl BlockPool {
    /// Creates a pool of free blocks of `positions` positions each, a multiple of [`BLOCK`], and free slots of
    /// states. With states, a block has one part.
    #[must_use]
    pub fn new(CacheSize { blocks: count, states }: CacheSize, positions: usize) -> Self {
        debug_assert!(positions > 0 && positions.is_multiple_of(BLOCK), "a block has whole parts");
        debug_assert!(states == 0 || positions == BLOCK, "states are kept after whole blocks");
        Self {
            blocks: (0..count).map(|_| Block::default()).collect(),
            parts: (positions / BLOCK).max(1),
            free: (0..count).rev().map(BlockId).collect(),
            kept: BTreeMap::new(),
            by_content: HashMap::new(),
            clock: 0,
            states: States::new(states),
            state_interval: BLOCK * count.div_ceil(states.max(1)).max(1) as usize,
        }
    }

    /// Returns the current use of the slots of states.
    #[must_use]
    pub fn state_usage(&self) -> StateUsage {
        self.states.usage()
    }

    /// Returns the current use of the blocks.
    #[must_use]
    pub fn usage(&self) -> Usage {
        let (total, kept) = (self.blocks.len(), self.kept.len());
        Usage { total, held: total - kept - self.free.len(), kept, positions: self.positions() }
    }

    /// Returns the number of unreferenced blocks.
    #[must_use]
    pub fn available(&self) -> usize {
        self.free.len() + self.kept.len()
    }

    /// Returns the number of additional blocks that the table needs for `positions`.
    #[must_use]
    pub fn missing_blocks(&self, table: &BlockTable, positions: usize) -> usize {
        positions.div_ceil(self.positions()).saturating_sub(table.blocks.len())
    }

    /// Returns the longest cached prefix of `content` from which a sequence can start. The last token is never part
    /// of it, because its logits are needed.
    #[must_use]
    pub fn find(&self, content: Content<'_>) -> Found {
        let (mut found, mut prefix) = (Vec::new(), content.start());
        for at in 0..content.tokens.len().saturating_sub(1) / BLOCK {
            let Some(&part) = self.by_content.get(&content.key(prefix, at)) else { break };
            found.push(part);
            prefix = Prefix::Part(part);
        }
        let positions = found.len() * BLOCK;
        let has_state = |count: &usize| self.states.has(found[count - 1]);
        let ends = (!self.states.is_empty()).then(|| (1..=found.len()).filter(has_state).collect());
        let wanted = [positions, content.tokens.len().saturating_sub(1) / BLOCK * BLOCK];
        let mut found = Found { parts: found, ends, wanted };
        found.truncate(positions);
        found
    }

    /// References the blocks of a prefix. If it ends inside a block that others use, the table has no
    /// block for its last parts yet, and they must be [copied](BlockTable::copy).
    pub fn take(&mut self, found: &Found) -> BlockTable {
        let last = found.parts.last().copied();
        let mut table =
            BlockTable { committed: found.parts.len(), last, wanted: found.wanted, ..BlockTable::default() };
        for parts in found.parts.chunks(self.parts) {
            let Some(&Part { block, .. }) = parts.last() else { continue };
            let can_extend = self.can_extend(block, parts.len());
            self.reference(block);
            if parts.len() == self.parts || can_extend {
                table.blocks.push(block);
            } else {
                table.source = Some(Source { block, at: table.blocks.len(), positions: parts.len() * BLOCK });
            }
        }
        if !self.states.is_empty() {
            table.start = last.and_then(|last| Some((last, self.states.pin(last)?)));
        }
        table
    }

    /// Returns true if a sequence can have a slot for its state, or needs none.
    #[must_use]
    pub fn has_slot(&self) -> bool {
        self.states.is_empty() || self.states.has_slot()
    }

    /// Gives the table a slot for its state, if the model has states. If the kept state from which it starts has the
    /// last slot, the table takes that. Returns false if no slot is left.
    #[must_use]
    pub fn take_state(&mut self, table: &mut BlockTable) -> bool {
        if self.states.is_empty() {
            return true;
        }
        table.state = self.states.acquire();
        if let (None, Some((part, _))) = (table.state, table.start) {
            table.state = self.states.take_over(part);
            table.start = table.start.filter(|_| table.state.is_none());
        }
        table.state.is_some()
    }

    /// Chooses the states to keep of a chunk, which are those after some of its tokens `range`. Takes slots for them
    /// while there are some that no sequence uses.
    pub fn plan_saves(&mut self, table: &mut BlockTable, range: Range<usize>) {
        if table.state.is_none() {
            return;
        }
        self.free_saves(table);
        let regular = (range.start / self.state_interval + 1..).map(|i| i * self.state_interval);
        let regular = regular.take_while(|tokens| *tokens <= range.end);
        for tokens in table.wanted.into_iter().chain(regular) {
            let is_new = table.saves.iter().all(|save| save.tokens != tokens);
            if (range.start + 1..=range.end).contains(&tokens) && is_new {
                let Some(state) = self.states.acquire() else { break };
                table.saves.push(StateSave { tokens, state });
            }
        }
        table.saves.sort_unstable_by_key(|save| save.tokens);
    }

    /// Records that the model has started from the table's kept state and made its [copy](BlockTable::copy), if there
    /// were such.
    pub fn copied(&mut self, table: &mut BlockTable) {
        if let Some((part, _)) = table.start.take() {
            self.states.unpin(part);
        }
        if let Some(source) = table.source.take() {
            self.release_block(source.block);
        }
    }

    /// Removes the positions that are not copied yet. Returns the number of positions that the table
    /// still has, or `None` if nothing had to be copied.
    pub fn cancel_copy(&mut self, table: &mut BlockTable) -> Option<usize> {
        let at = table.source?.at;
        self.copied(table);
        table.committed = at * self.parts;
        Some(at * self.positions())
    }

    /// Gives the table blocks for `positions`, and evicts where no block is free. Returns false,
    /// and changes nothing, if there are too few blocks.
    #[must_use]
    pub fn reserve(&mut self, table: &mut BlockTable, positions: usize) -> bool {
        let missing = self.missing_blocks(table, positions);
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

    /// Adds to the prefix cache the parts that are full once the first `computed` tokens of `content`
    /// are computed, with the states that were planned to be kept. A block whose content is cached already is replaced by the cached one.
    pub fn commit(&mut self, table: &mut BlockTable, content: Content<'_>, computed: usize) {
        if table.last.is_some_and(|last| self.is_evicted(last)) {
            // Nothing can be found after it: the block's parts are added again.
            table.committed -= table.committed % self.parts;
        }
        while (table.committed + 1) * BLOCK <= computed {
            let (at, index) = (table.committed / self.parts, table.committed % self.parts);
            let key = content.key(self.prefix(table, content), table.committed);
            let own = table.blocks[at];
            let cached = self.add(own, index, key);
            if index + 1 == self.parts && cached.block != own {
                self.reference(cached.block);
                self.release_block(own);
                table.blocks[at] = cached.block;
            }
            table.last = Some(cached);
            table.committed += 1;
            self.keep_state(table, cached);
        }
    }

    /// Releases the blocks after the first `positions`. Precondition: no part after them is in the prefix cache.
    pub fn cut(&mut self, table: &mut BlockTable, positions: usize) {
        let kept = positions.div_ceil(self.positions()).min(table.blocks.len());
        for id in table.blocks.split_off(kept).into_iter().rev() {
            self.release_block(id);
        }
    }

    /// Releases the state and all blocks of the table. Cached ones are evicted later, the start of the prompt
    /// last.
    pub fn release(&mut self, table: &mut BlockTable) {
        self.copied(table);
        self.free_saves(table);
        table.state.take().into_iter().for_each(|state| self.states.free(state));
        for id in std::mem::take(&mut table.blocks).into_iter().rev() {
            self.release_block(id);
        }
        *table = BlockTable::default();
    }

    /// Evicts all unreferenced blocks. Returns their number.
    pub fn clear(&mut self) -> usize {
        let kept = self.kept.len();
        while let Some(id) = self.evict() {
            self.free.push(id);
        }
        kept
    }

    fn positions(&self) -> usize {
        self.parts * BLOCK
    }

    /// Keeps the state after the table's last committed part, if that was planned.
    fn keep_state(&mut self, table: &mut BlockTable, part: Part) {
        if let Some(at) = table.saves.iter().position(|save| save.tokens == table.committed * BLOCK) {
            self.states.keep(part, table.saves.remove(at).state);
        }
    }

    /// Frees the slots that were planned for states to keep.
    fn free_saves(&mut self, table: &mut BlockTable) {
        table.saves.drain(..).for_each(|save| self.states.free(save.state));
    }

    /// Returns the prefix of the table's next part.
    fn prefix(&self, table: &BlockTable, content: Content<'_>) -> Prefix {
        match (table.committed.checked_sub(1), table.last) {
            (None, _) => content.start(),
            (Some(_), Some(last)) if !table.committed.is_multiple_of(self.parts) => Prefix::Part(last),
            (Some(before), _) => Prefix::Part(self.part(table.blocks[before / self.parts], self.parts - 1)),
        }
    }

    /// Returns the cached part with this content, which is part `index` of `block` if there was none.
    fn add(&mut self, block: BlockId, index: usize, key: Key) -> Part {
        if let Some(&cached) = self.by_content.get(&key) {
            return cached;
        }
        let part = self.part(block, index);
        let Block { keys, end, .. } = &mut self.blocks[block.0 as usize];
        keys.push(key.clone());
        *end = (*end).max(index + 1);
        self.by_content.insert(key, part);
        part
    }

    /// Returns true if a sequence may write to the block after its first `parts` parts: neither a
    /// sequence nor the prefix cache has the positions there.
    fn can_extend(&self, block: BlockId, parts: usize) -> bool {
        let Block { references, end, .. } = self.blocks[block.0 as usize];
        references == 0 && end == parts
    }

    fn part(&self, block: BlockId, index: usize) -> Part {
        Part { block, generation: self.blocks[block.0 as usize].generation, index }
    }

    fn is_evicted(&self, part: Part) -> bool {
        self.blocks[part.block.0 as usize].generation != part.generation
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
        if block.keys.is_empty() {
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
        (0..self.blocks[id.0 as usize].end).for_each(|index| self.states.drop_of(self.part(id, index)));
        let block = &mut self.blocks[id.0 as usize];
        (block.generation, block.end) = (block.generation + 1, 0);
        for key in block.keys.drain(..) {
            self.by_content.remove(&key);
        }
        Some(id)
    }
}

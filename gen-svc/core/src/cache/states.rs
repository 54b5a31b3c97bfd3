//! The slots of recurrent states: the running sequences' own, and the kept ones.
//!
//! A kept state belongs to a part of the prefix cache. It has seen the tokens up to the end of that
//! part, so a prompt that starts with them continues from it. Slots are taken from the kept states in
//! LRU order. A state is also dropped with its block.

use std::collections::{BTreeMap, HashMap};

use super::table::{Part, StateId};

/// The use of the slots.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct StateUsage {
    /// All slots. 0: the model has no recurrent states.
    pub total: usize,
    /// Slots of running sequences.
    pub held: usize,
    /// Slots in the prefix cache from which no sequence starts now.
    pub kept: usize,
}

/// All slots.
#[derive(Debug)]
pub(super) struct States {
    total: usize,
    free: Vec<StateId>,
    kept: HashMap<Part, Kept>,
    /// The kept states that are not pinned, by the time of their last use.
    idle: BTreeMap<u64, Part>,
    clock: u64,
}

#[derive(Debug)]
struct Kept {
    state: StateId,
    /// The time of the last use on the clock of the slots.
    used: u64,
    /// The sequences whose next chunk starts from it.
    pins: u32,
}

impl States {
    pub(super) fn new(total: u32) -> Self {
        Self {
            total: total as usize,
            free: (0..total).rev().map(StateId).collect(),
            kept: HashMap::new(),
            idle: BTreeMap::new(),
            clock: 0,
        }
    }

    /// Returns true if the model has no recurrent states.
    pub(super) fn is_empty(&self) -> bool {
        self.total == 0
    }

    pub(super) fn usage(&self) -> StateUsage {
        let kept = self.idle.len();
        StateUsage { total: self.total, held: self.total - kept - self.free.len(), kept }
    }

    /// Returns true if the state after the part is kept.
    pub(super) fn has(&self, part: Part) -> bool {
        self.kept.contains_key(&part)
    }

    /// Returns a free slot, or that of the kept state that was used first. `None`: all are in use.
    pub(super) fn acquire(&mut self) -> Option<StateId> {
        self.free.pop().or_else(|| {
            let (_, part) = self.idle.pop_first()?;
            self.kept.remove(&part).map(|kept| kept.state)
        })
    }

    /// Returns true if a slot is free or has a kept state from which no sequence starts.
    pub(super) fn has_slot(&self) -> bool {
        !self.free.is_empty() || !self.idle.is_empty()
    }

    /// Drops the state after a part from which one sequence starts, and returns its slot. `None`: several start from it.
    pub(super) fn take_over(&mut self, part: Part) -> Option<StateId> {
        self.kept.get(&part).filter(|kept| kept.pins == 1)?;
        self.kept.remove(&part).map(|kept| kept.state)
    }

    pub(super) fn free(&mut self, state: StateId) {
        self.free.push(state);
    }

    /// Keeps the state after a part, unless one is kept already.
    pub(super) fn keep(&mut self, part: Part, state: StateId) {
        if self.has(part) {
            return self.free(state);
        }
        self.clock += 1;
        self.kept.insert(part, Kept { state, used: self.clock, pins: 0 });
        self.idle.insert(self.clock, part);
    }

    /// Prevents that the state after a part is dropped, and returns it.
    pub(super) fn pin(&mut self, part: Part) -> Option<StateId> {
        let kept = self.kept.get_mut(&part)?;
        self.idle.remove(&kept.used);
        kept.pins += 1;
        Some(kept.state)
    }

    /// Ends a pin. The state was used now.
    pub(super) fn unpin(&mut self, part: Part) {
        let Some(kept) = self.kept.get_mut(&part) else { return };
        kept.pins -= 1;
        if kept.pins == 0 {
            self.clock += 1;
            kept.used = self.clock;
            self.idle.insert(self.clock, part);
        }
    }

    /// Drops the state after a part whose block is evicted.
    pub(super) fn drop_of(&mut self, part: Part) {
        if let Some(Kept { state, used, pins }) = self.kept.remove(&part) {
            debug_assert_eq!(pins, 0, "a sequence that starts from a state references its block");
            self.idle.remove(&used);
            self.free.push(state);
        }
    }
}

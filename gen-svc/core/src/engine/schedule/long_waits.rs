//! The turns of long waits: among all starts, and between callers.

use std::collections::HashMap;
use std::sync::Arc;

/// One of this many starts goes to a long wait.
const STARTS_PER_LONG_WAIT: u64 = 4;

/// The order in which callers last started a sequence that had waited long.
#[derive(Debug, Default)]
pub struct LongWaits {
    /// The starts before the next turn of a long wait.
    pub starts_until_next: u64,
    turns: HashMap<Arc<str>, u64>,
    count: u64,
}

impl LongWaits {
    /// Returns the number of the caller's last turn, or 0.
    pub fn last_turn(&self, caller: &str) -> u64 {
        self.turns.get(caller).copied().unwrap_or(0)
    }

    /// Records a start that is no turn.
    pub fn record_start(&mut self) {
        self.starts_until_next = self.starts_until_next.saturating_sub(1);
    }

    /// Records a turn of a caller. Forgets the callers for which `waits` returns false.
    pub fn record_turn(&mut self, caller: Arc<str>, waits: impl Fn(&str) -> bool) {
        self.starts_until_next = STARTS_PER_LONG_WAIT - 1;
        self.turns.retain(|caller, _| waits(caller));
        self.count += 1;
        self.turns.insert(caller, self.count);
    }
}

//! The turns of callers whose sequences have waited long.

use std::collections::HashMap;
use std::sync::Arc;

/// The order in which callers last started a sequence that had waited long.
#[derive(Debug, Default)]
pub(super) struct LongWaits {
    turns: HashMap<Arc<str>, u64>,
    count: u64,
}

impl LongWaits {
    /// Returns the number of the caller's last turn, or 0.
    pub(super) fn last_turn(&self, caller: &str) -> u64 {
        self.turns.get(caller).copied().unwrap_or(0)
    }

    /// Records a turn of a caller. Forgets the callers for which `waits` returns false.
    pub(super) fn record(&mut self, caller: Arc<str>, waits: impl Fn(&str) -> bool) {
        self.turns.retain(|caller, _| waits(caller));
        self.count += 1;
        self.turns.insert(caller, self.count);
    }
}

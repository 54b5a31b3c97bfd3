//! The state of the `loop` variable of a `for` block.

use std::sync::atomic::{AtomicU16, AtomicUsize, Ordering};

use minijinja::Value;
use parking_lot::Mutex;

use super::items::Items;

/// Python's `LoopContext`.
#[derive(Debug)]
pub(crate) struct Loop {
    pub(super) iterable: Value,
    /// The `if` of the loop, as a macro of an item.
    pub(super) filter: Option<Value>,
    /// The loop as a macro, if it is recursive.
    pub(crate) recurse: Option<Value>,
    pub(crate) depth0: usize,
    pub(super) nesting: AtomicU16,
    /// The number of rounds that have begun.
    pub(super) index: AtomicUsize,
    pub(super) progress: Mutex<Progress>,
}

/// The state of the rounds.
#[derive(Debug)]
pub(super) struct Progress {
    pub(super) items: Items,
    pub(super) before: Option<Value>,
    pub(super) current: Option<Value>,
    /// The next item, if code looked ahead; the inner value is nothing at the end.
    pub(super) after: Option<Option<Value>>,
    pub(super) length: Option<usize>,
    pub(super) last_changed: Option<Vec<Value>>,
}

impl Loop {
    pub(super) fn nesting(&self) -> u16 {
        self.nesting.load(Ordering::Relaxed)
    }

    /// Returns the number of rounds that have begun.
    pub(crate) fn index(&self) -> usize {
        self.index.load(Ordering::Relaxed)
    }
}

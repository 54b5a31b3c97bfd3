//! The data of dicts, and the lookup of text keys.

use std::hash::{BuildHasher, RandomState};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{LazyLock, OnceLock};

use minijinja::Value;

use crate::budget;
use crate::taint;

/// Up to this size, a linear search is faster than hashing.
pub(super) const MAX_SEARCHED_ENTRIES: usize = 8;

/// A dict in insertion order.
#[derive(Debug)]
pub(crate) struct Dict {
    pub(super) first: Entries,
    pub(super) nesting: u16,
    /// The number of values that were charged.
    pub(super) charged: AtomicUsize,
}

/// The entries of a dict. A block that sets an item leaves the entries in place, because they may
/// be borrowed, and appends the changed ones.
#[derive(Debug)]
pub(super) struct Entries {
    pub(super) list: Vec<(Value, Value)>,
    /// The hash and position of every entry, sorted by hash; empty while the dict is small.
    pub(super) index: Vec<(u64, u32)>,
    pub(super) changed: OnceLock<Box<Self>>,
}

impl Drop for Dict {
    fn drop(&mut self) {
        budget::free_values(self.charged.load(Ordering::Relaxed));
        // Iterative, because a long chain of changes would overflow the stack.
        let mut next = self.first.changed.take();
        while let Some(mut entries) = next {
            next = entries.changed.take();
        }
    }
}

impl Dict {
    /// Returns the current entries. Every earlier change costs a step.
    pub(super) fn now(&self) -> &Entries {
        let (mut entries, mut changes) = (&self.first, 0);
        while let Some(changed) = entries.changed.get() {
            entries = changed;
            changes += 1;
        }
        budget::spend(changes);
        entries
    }

    pub(crate) fn len(&self) -> usize {
        self.now().list.len()
    }

    pub(crate) fn entries(&self) -> &[(Value, Value)] {
        &self.now().list
    }

    pub(super) fn nesting(&self) -> u16 {
        self.nesting
    }

    /// Looks up a text key.
    pub(crate) fn get_str(&self, key: &str) -> Option<&Value> {
        let matches = |(found, _): &&(Value, Value)| found.as_str().is_some_and(|found| taint::same(found, key));
        let entries = self.now();
        let entry = match entries.candidates(hash_str(key)) {
            None => entries.list.iter().find(matches),
            Some(candidates) => candidates.iter().map(|&(_, at)| &entries.list[at as usize]).find(matches),
        };
        entry.map(|(_, value)| value)
    }
}

impl Entries {
    /// Returns the entries of one hash; nothing if the dict has no index.
    pub(super) fn candidates(&self, hash: u64) -> Option<&[(u64, u32)]> {
        if self.index.is_empty() {
            return None;
        }
        let start = self.index.partition_point(|&(other, _)| other < hash);
        let len = self.index[start..].iter().take_while(|&&(other, _)| other == hash).count();
        Some(&self.index[start..start + len])
    }
}

pub(super) static HASHING: LazyLock<RandomState> = LazyLock::new(RandomState::new);

pub(super) fn hash_str(text: &str) -> u64 {
    HASHING.hash_one(taint::strip(text))
}

/// The result of `keys()`, `values()` or `items()`: a live view of a dict.
#[derive(Debug)]
pub(crate) struct View {
    pub(super) kind: ViewKind,
    pub(super) dict: Value,
}

/// The part of the entries that a view shows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ViewKind {
    Keys,
    Values,
    Items,
}

impl ViewKind {
    pub(super) fn type_name(self) -> &'static str {
        match self {
            Self::Keys => "dict_keys",
            Self::Values => "dict_values",
            Self::Items => "dict_items",
        }
    }
}

/// The dict of a view whose value is no dict.
pub(super) static EMPTY: Dict = Dict {
    first: Entries { list: Vec::new(), index: Vec::new(), changed: OnceLock::new() },
    nesting: 0,
    charged: AtomicUsize::new(0),
};

impl View {
    pub(crate) fn kind(&self) -> ViewKind {
        self.kind
    }
}

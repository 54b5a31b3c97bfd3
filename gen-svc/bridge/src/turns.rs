//! The queue before an engine: which request starts next. The rules are those of gen-svc's own engine.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Instant;

use tandem_core::engine::fairness::{LongWaits, Waiting, by_long_wait, by_priority};

/// A request that waits.
#[derive(Debug)]
pub(crate) struct Entry<T> {
    pub(crate) request: T,
    pub(crate) caller: Arc<str>,
    pub(crate) priority: i32,
    /// The outputs that it takes at once, at most the limit.
    pub(crate) outputs: usize,
    pub(crate) since: Instant,
}

/// The waiting requests, and the outputs that run.
#[derive(Debug)]
pub(crate) struct Turns<T> {
    waiting: Vec<Entry<T>>,
    /// By caller.
    running: HashMap<Arc<str>, usize>,
    long_waits: LongWaits,
    /// The most running outputs.
    limit: usize,
}

impl<T> Turns<T> {
    pub(crate) fn new(limit: usize) -> Self {
        Self { waiting: Vec::new(), running: HashMap::new(), long_waits: LongWaits::default(), limit }
    }

    /// Adds a request at the end.
    pub(crate) fn add(&mut self, entry: Entry<T>) {
        self.waiting.push(entry);
    }

    /// Returns the number of running outputs.
    pub(crate) fn running(&self) -> usize {
        self.running.values().sum()
    }

    /// Takes the request that starts next.
    pub(crate) fn start(&mut self) -> Option<Entry<T>> {
        let free = self.limit.saturating_sub(self.running());
        if free == 0 {
            return None;
        }
        let now = Instant::now();
        let of = |(at, entry): (usize, &Entry<T>)| Waiting {
            at,
            priority: entry.priority,
            of_caller: self.running.get(&entry.caller).copied().unwrap_or(0),
            waited: now.duration_since(entry.since),
            last_turn: self.long_waits.last_turn(&entry.caller),
        };
        let queue: Vec<_> = self.waiting.iter().enumerate().map(of).collect();
        let is_turn = self.long_waits.starts_until_next == 0;
        let long = if is_turn { by_long_wait(&queue) } else { None };
        let next = long.or_else(|| by_priority(&queue, None))?;
        if self.waiting[next.at].outputs > free {
            return None;
        }
        let entry = self.waiting.remove(next.at);
        match long {
            None => self.long_waits.record_start(),
            Some(_) => {
                let waiting = &self.waiting;
                let waits = |caller: &str| waiting.iter().any(|entry| &*entry.caller == caller);
                self.long_waits.record_turn(Arc::clone(&entry.caller), waits);
            }
        }
        *self.running.entry(Arc::clone(&entry.caller)).or_default() += entry.outputs;
        Some(entry)
    }

    /// Records the end of a request that was started.
    pub(crate) fn end(&mut self, caller: &Arc<str>, outputs: usize) {
        if let Some(count) = self.running.get_mut(caller) {
            *count = count.saturating_sub(outputs);
        }
        self.running.retain(|_, count| *count > 0);
    }

    /// Removes the waiting requests for which `has_ended` returns true. It gets their places, from 1.
    pub(crate) fn remove(&mut self, mut has_ended: impl FnMut(&mut T, usize) -> bool) {
        let mut place = 0;
        self.waiting.retain_mut(|entry| {
            place += 1;
            !has_ended(&mut entry.request, place)
        });
    }
}

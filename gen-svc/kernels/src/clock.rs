//! Where the time of a step is spent, for benchmarks.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

/// A kind of kernel.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Part {
    Products,
    Attention,
    Norms,
    Quantizing,
    /// Rotary embeddings.
    Rotation,
    /// Keys and values into the KV cache.
    Writing,
    Embedding,
    /// Layers of linear attention: convolution, gates and recurrence.
    Recurrence,
}

impl Part {
    pub const ALL: [Self; 8] = [
        Self::Products,
        Self::Attention,
        Self::Norms,
        Self::Quantizing,
        Self::Rotation,
        Self::Writing,
        Self::Embedding,
        Self::Recurrence,
    ];
}

/// The time of each part.
#[derive(Debug, Default)]
pub(crate) struct Clock {
    nanoseconds: [AtomicU64; Part::ALL.len()],
}

/// A running kernel. Its time counts until it is dropped.
#[derive(Debug)]
pub(crate) struct Running<'a> {
    counter: &'a AtomicU64,
    start: Instant,
}

impl Drop for Running<'_> {
    fn drop(&mut self) {
        add(self.counter, self.start);
    }
}

/// Adds the time since `start` to a counter of nanoseconds.
pub(crate) fn add(counter: &AtomicU64, start: Instant) {
    counter.fetch_add(start.elapsed().as_nanos() as u64, Relaxed);
}

impl Clock {
    /// Returns the time of a part since the last call, and starts again.
    pub(crate) fn take(&self, part: Part) -> Duration {
        Duration::from_nanos(self.nanoseconds[part as usize].swap(0, Relaxed))
    }

    /// Starts to count the time of a kernel.
    pub(crate) fn run(&self, part: Part) -> Running<'_> {
        Running { counter: &self.nanoseconds[part as usize], start: Instant::now() }
    }
}

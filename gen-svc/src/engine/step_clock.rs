//! How long the engine's current step has run, by which a stalled engine is noticed.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// The value of `began` between two steps.
const IDLE: u64 = u64::MAX;

/// The start of the current step.
#[derive(Debug)]
pub(super) struct StepClock {
    origin: Instant,
    /// Milliseconds from `origin` to the start of the current step, or [`IDLE`].
    began: AtomicU64,
}

impl Default for StepClock {
    fn default() -> Self {
        Self { origin: Instant::now(), began: AtomicU64::new(IDLE) }
    }
}

impl StepClock {
    /// Runs a step.
    pub(super) fn time<T>(&self, step: impl FnOnce() -> T) -> T {
        self.began.store(self.now(), Ordering::Relaxed);
        let result = step();
        self.began.store(IDLE, Ordering::Relaxed);
        result
    }

    /// Returns how long the current step has run, or None between two steps.
    pub(super) fn age(&self) -> Option<Duration> {
        let began = self.began.load(Ordering::Relaxed);
        (began != IDLE).then(|| Duration::from_millis(self.now().saturating_sub(began)))
    }

    fn now(&self) -> u64 {
        u64::try_from(self.origin.elapsed().as_millis()).unwrap_or(IDLE - 1)
    }
}

//! How long ago the engine's thread finished a step or had none to compute, by which a stalled engine
//! is noticed.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// The value of `beat` after the thread has ended.
const ENDED: u64 = u64::MAX;

/// The time of the thread's last sign of life.
#[derive(Debug)]
pub(super) struct StepClock {
    origin: Instant,
    /// Milliseconds from `origin` to the last sign of life, or [`ENDED`].
    beat: AtomicU64,
}

impl Default for StepClock {
    fn default() -> Self {
        Self { origin: Instant::now(), beat: AtomicU64::new(0) }
    }
}

impl StepClock {
    /// Records that the thread has finished a step, or has none to compute.
    pub(super) fn beat(&self) {
        self.beat.store(self.now(), Ordering::Relaxed);
    }

    /// Records that the thread ends.
    pub(super) fn end(&self) {
        self.beat.store(ENDED, Ordering::Relaxed);
    }

    /// Returns the time since the last sign of life, or None after the end.
    pub(super) fn age(&self) -> Option<Duration> {
        let beat = self.beat.load(Ordering::Relaxed);
        (beat != ENDED).then(|| Duration::from_millis(self.now().saturating_sub(beat)))
    }

    fn now(&self) -> u64 {
        u64::try_from(self.origin.elapsed().as_millis()).unwrap_or(ENDED - 1)
    }
}

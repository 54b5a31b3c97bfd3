//! Leaves a replica out for a while after its tasks got stuck or it broke the contract, even if its
//! health checks succeed.
//!
//! An ejection ends after a time that doubles with each ejection in a row. The replica then gets one
//! task. If that task succeeds, the replica gets tasks as before. Ejections are in a row if less than
//! [`MAX_EJECTION`] is between a return and the next one.

use std::sync::LazyLock;
use std::time::Duration;

use opentelemetry::metrics::Counter;
use tandem_common::telemetry::meter;
use tokio::time::Instant;

/// Duration of the first ejection.
const MIN_EJECTION: Duration = Duration::from_secs(5);
/// Longest ejection.
const MAX_EJECTION: Duration = Duration::from_secs(60);

static EJECTIONS: LazyLock<Counter<u64>> = LazyLock::new(|| {
    meter()
        .u64_counter("tandem.generation.ejections")
        .with_description("Number of times that a replica was left out because it was stuck or broke the contract.")
        .build()
});

/// Registers the counter of ejections, so that it reports 0 before the first one.
pub(super) fn register() {
    EJECTIONS.add(0, &[]);
}

/// Whether a replica gets tasks.
#[derive(Debug, Default)]
pub(super) struct Ejection {
    in_a_row: u32,
    /// End of the last ejection. None if a task has succeeded since.
    until: Option<Instant>,
    /// When a task last succeeded after an ejection.
    returned: Option<Instant>,
    /// True while the first task after an ejection runs.
    is_probed: bool,
    /// Number of changes. A failure from before the last change is no new failure.
    epoch: u64,
}

/// A task's entry to a replica.
#[derive(Debug, Clone, Copy)]
pub(super) struct Entry {
    epoch: u64,
    /// True for the only task of a replica whose ejection has ended.
    pub(super) is_probe: bool,
}

impl Ejection {
    /// Returns true if the replica is left out: it is ejected, or its probe has not ended.
    pub(super) fn is_closed(&self, now: Instant) -> bool {
        self.until.is_some_and(|until| now < until || self.is_probed)
    }

    /// Returns the end of the last ejection, or None if a task has succeeded since.
    pub(super) fn until(&self) -> Option<Instant> {
        self.until
    }

    /// Enters a task. Returns None if the replica is left out.
    pub(super) fn enter(&mut self, now: Instant) -> Option<Entry> {
        if self.is_closed(now) {
            return None;
        }
        self.is_probed = self.until.is_some();
        Some(Entry { epoch: self.epoch, is_probe: self.is_probed })
    }

    /// Enters a task although the replica is left out, because every other one is, too.
    pub(super) fn enter_anyway(&self) -> Entry {
        Entry { epoch: self.epoch, is_probe: false }
    }

    /// Ejects the replica after a failure of a task. Returns the duration, or None if the replica
    /// was ejected since the task has entered.
    pub(super) fn fail(&mut self, entry: Entry, now: Instant) -> Option<Duration> {
        if entry.epoch != self.epoch {
            return None;
        }
        let is_in_a_row = self.returned.is_none_or(|returned| now - returned < MAX_EJECTION);
        let before = if is_in_a_row { self.in_a_row } else { 0 };
        let time = MIN_EJECTION.saturating_mul(1 << before.min(8)).min(MAX_EJECTION);
        *self = Self { in_a_row: before + 1, until: Some(now + time), epoch: self.epoch + 1, ..Self::default() };
        EJECTIONS.add(1, &[]);
        Some(time)
    }

    /// Records the success of a task. Returns true if the replica gets tasks again.
    pub(super) fn succeed(&mut self, entry: Entry, now: Instant) -> bool {
        let returns = entry.epoch == self.epoch && self.until.is_some();
        if returns {
            let (in_a_row, epoch) = (self.in_a_row, self.epoch + 1);
            *self = Self { in_a_row, returned: Some(now), epoch, ..Self::default() };
        }
        returns
    }

    /// Records the end of a task. If it was the probe and had no result, the next task is the probe.
    pub(super) fn leave(&mut self, entry: Entry) {
        if entry.is_probe && entry.epoch == self.epoch {
            self.is_probed = false;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ejections_within_a_minute_of_a_return_are_in_a_row() {
        let (mut ejection, mut now) = (Ejection::default(), Instant::now());
        // The seconds before each task, whether it succeeds, and the seconds of the ejection that it causes.
        let tasks = [
            (0, false, 5),
            (5, false, 10),
            (10, true, 0),
            (59, false, 20),
            (20, false, 40),
            (40, false, 60),
            (60, false, 60),
            (60, true, 0),
            (60, false, 5),
            (5, true, 0),
        ];
        for (number, (pause, succeeds, seconds)) in tasks.into_iter().enumerate() {
            now += Duration::from_secs(pause);
            let entry = ejection.enter(now).expect("the ejection has ended");
            if succeeds {
                assert!(ejection.succeed(entry, now), "task {number}");
            } else {
                assert_eq!(ejection.fail(entry, now), Some(Duration::from_secs(seconds)), "task {number}");
            }
        }
    }
}

//! A limit on the log lines of an event that others cause.

use std::time::{Duration, Instant};

use parking_lot::Mutex;

/// The interval for events that anyone who reaches the port can cause.
pub(crate) const PEER_INTERVAL: Duration = Duration::from_secs(10);

/// At most one log line of an event per interval.
#[derive(Debug)]
pub struct LogLimit {
    interval: Duration,
    /// When the last line was written, and the events since.
    last: Mutex<(Option<Instant>, u64)>,
}

impl LogLimit {
    /// Allows one line per interval.
    #[must_use]
    pub const fn new(interval: Duration) -> Self {
        Self { interval, last: Mutex::new((None, 0)) }
    }

    /// Counts an event. Returns None if a line was written within the interval, else the number of
    /// events without a line since the last line.
    pub fn permit(&self) -> Option<u64> {
        let (logged, unlogged) = &mut *self.last.lock();
        if logged.is_some_and(|logged| logged.elapsed() < self.interval) {
            *unlogged += 1;
            return None;
        }
        *logged = Some(Instant::now());
        Some(std::mem::take(unlogged))
    }
}

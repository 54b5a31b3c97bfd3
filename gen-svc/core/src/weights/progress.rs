//! Reports how far the load of a model's weights is.

use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// The time between two reports. A load that takes less is not reported.
const INTERVAL: Duration = Duration::from_secs(5);

/// How many bytes of the files are read.
#[derive(Debug)]
pub(super) struct Progress {
    total: u64,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    read: u64,
    next_report: Instant,
}

impl Progress {
    /// Starts a load of this number of bytes.
    pub(super) fn start(total: u64) -> Self {
        Self { total, state: Mutex::new(State { read: 0, next_report: Instant::now() + INTERVAL }) }
    }

    /// Adds bytes that were read.
    pub(super) fn add(&self, bytes: usize) {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        state.read += bytes as u64;
        if Instant::now() >= state.next_report {
            state.next_report += INTERVAL;
            tracing::info!(
                percent = percent(state.read, self.total),
                read_mib = state.read >> 20,
                total_mib = self.total >> 20,
                "loading weights"
            );
        }
    }
}

/// Returns the share of `total` in percent. A tensor may be read twice, and others are not needed.
fn percent(read: u64, total: u64) -> u64 {
    (u128::from(read) * 100).checked_div(u128::from(total)).map_or(100, |share| share.min(100) as u64)
}

#[cfg(test)]
mod tests {
    use super::percent;

    #[test]
    fn percent_of_bytes() {
        assert_eq!(percent(0, 200), 0);
        assert_eq!(percent(u64::MAX / 2, u64::MAX), 49);
        assert_eq!(percent(201, 200), 100);
        assert_eq!(percent(0, 0), 100);
    }
}

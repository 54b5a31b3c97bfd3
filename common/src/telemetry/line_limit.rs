//! A limit on the log events of each caller, so that no caller can fill the log.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Instant;

use parking_lot::Mutex;
use tracing::Level;

/// The events per second that the calls of one caller can cause. Metrics count every call.
pub(super) const LINES_PER_SECOND: f64 = 100.0;
/// The seconds whose events a caller can cause at once.
const BURST_SECONDS: f64 = 10.0;
/// The maximum number of callers that have separate limits. Further callers share one.
const MAX_CALLERS: usize = 4096;

/// The limits of each caller's events, by level.
#[derive(Debug)]
pub(super) struct CallerLimit {
    /// Of information and warnings.
    usual: LineLimit,
    /// Of errors, which other events of the caller must not displace.
    errors: LineLimit,
}

impl CallerLimit {
    /// Limits each caller's events: errors, and information and warnings together.
    pub(super) fn new(lines_per_second: f64) -> Self {
        Self { usual: LineLimit::new(lines_per_second), errors: LineLimit::new(lines_per_second) }
    }

    /// Counts an event. Returns None if it exceeds its caller's limit, else the number of events of
    /// the caller that exceeded it since the last one. More detail has no limit: it is only logged
    /// where it is asked for.
    pub(super) fn permit(&self, level: Level, caller: &Arc<str>) -> Option<u64> {
        match level {
            Level::ERROR => self.errors.permit(caller, Instant::now()),
            Level::WARN | Level::INFO => self.usual.permit(caller, Instant::now()),
            _ => Some(0),
        }
    }
}

/// A number of lines per second for each caller.
#[derive(Debug)]
struct LineLimit {
    lines_per_second: f64,
    callers: Mutex<HashMap<Arc<str>, Lines>>,
}

/// The lines of one caller.
#[derive(Debug)]
struct Lines {
    /// The lines that may be written at once, at the time `updated`.
    left: f64,
    updated: Instant,
    /// The lines that were not written since the last one that was.
    unwritten: u64,
}

impl LineLimit {
    fn new(lines_per_second: f64) -> Self {
        Self { lines_per_second, callers: Mutex::default() }
    }

    /// Counts a line. Returns None if it exceeds the caller's limit, else the number of the caller's
    /// lines that were not written since the last line.
    fn permit(&self, caller: &Arc<str>, now: Instant) -> Option<u64> {
        let burst = self.lines_per_second * BURST_SECONDS;
        let refilled = |lines: &Lines| {
            lines.left + now.saturating_duration_since(lines.updated).as_secs_f64() * self.lines_per_second
        };
        let callers = &mut *self.callers.lock();
        if callers.len() >= MAX_CALLERS && !callers.contains_key(caller) {
            // A caller without lines for some time gives its place to another one, even if some of
            // its lines were not written. No line then has their number.
            callers.retain(|_, lines| refilled(lines) < burst);
        }
        let has_place = callers.len() < MAX_CALLERS || callers.contains_key(caller);
        let caller = if has_place { Arc::clone(caller) } else { "others".into() };
        let lines = callers.entry(caller).or_insert(Lines { left: burst, updated: now, unwritten: 0 });
        (lines.left, lines.updated) = (refilled(lines).min(burst), now);
        if lines.left < 1.0 {
            lines.unwritten += 1;
            return None;
        }
        lines.left -= 1.0;
        Some(std::mem::take(&mut lines.unwritten))
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::time::{Duration, Instant};

    use tracing::Level;

    use super::{BURST_SECONDS, CallerLimit, LineLimit, MAX_CALLERS};

    const BURST: usize = BURST_SECONDS as usize;

    fn caller(number: usize) -> Arc<str> {
        number.to_string().into()
    }

    #[test]
    fn callers_that_went_silent_free_their_places() {
        let (limit, start) = (LineLimit::new(1.0), Instant::now());
        for number in 0..MAX_CALLERS {
            for _ in 0..=BURST {
                limit.permit(&caller(number), start);
            }
            assert_eq!(limit.permit(&caller(number), start), None, "it has lines that were not written");
        }
        let written = |from: usize, now| {
            let lines = (from..from + 2 * BURST).filter_map(|number| limit.permit(&caller(number), now));
            lines.count()
        };
        assert_eq!(written(MAX_CALLERS, start), BURST, "further callers share one limit");
        let later = start + Duration::from_secs_f64(2.0 * BURST_SECONDS);
        assert_eq!(written(2 * MAX_CALLERS, later), 2 * BURST);
    }

    #[test]
    fn errors_have_a_limit_beside_that_of_other_lines() {
        let (limit, caller) = (CallerLimit::new(1.0), caller(0));
        let count = |level| (0..10_000).filter_map(|_| limit.permit(level, &caller)).count();
        let is_limited = |count: usize| (BURST..10_000).contains(&count);
        assert!(is_limited(count(Level::INFO)));
        assert!(is_limited(count(Level::ERROR)));
        assert_eq!(count(Level::DEBUG), 10_000);
    }
}

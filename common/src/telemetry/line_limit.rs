//! A limit on the log lines of each caller, so that no caller can fill the log.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Instant;

use parking_lot::Mutex;

/// The seconds whose lines a caller can cause at once.
const BURST_SECONDS: f64 = 10.0;
/// The maximum number of callers that have separate limits. Further callers share one.
const MAX_CALLERS: usize = 4096;

/// A number of lines per second for each caller.
#[derive(Debug)]
pub(super) struct LineLimit {
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
    /// Limits the lines of each caller. 0 disables the limit.
    pub(super) fn new(lines_per_second: u32) -> Self {
        Self { lines_per_second: lines_per_second.into(), callers: Mutex::default() }
    }

    /// Counts a line. Returns None if it exceeds the caller's limit, else the number of the caller's
    /// lines that were not written since the last line.
    pub(super) fn permit(&self, caller: &Arc<str>) -> Option<u64> {
        if self.lines_per_second == 0.0 {
            return Some(0);
        }
        let (now, burst) = (Instant::now(), self.lines_per_second * BURST_SECONDS);
        let refilled =
            |lines: &Lines| lines.left + now.duration_since(lines.updated).as_secs_f64() * self.lines_per_second;
        let callers = &mut *self.callers.lock();
        if callers.len() >= MAX_CALLERS && !callers.contains_key(caller) {
            callers.retain(|_, lines| lines.unwritten > 0 || refilled(lines) < burst);
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

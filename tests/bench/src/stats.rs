//! Medians and percentiles.

use std::time::Duration;

/// Durations of repeated runs.
#[derive(Debug, Default)]
pub(crate) struct Times(Vec<Duration>);

impl Times {
    pub(crate) fn add(&mut self, time: Duration) {
        self.0.push(time);
    }

    pub(crate) fn extend(&mut self, other: Self) {
        self.0.extend(other.0);
    }

    pub(crate) fn len(&self) -> usize {
        self.0.len()
    }

    /// Returns the time that `share` of the runs do not exceed, zero without runs.
    pub(crate) fn percentile(&mut self, share: f64) -> Duration {
        self.0.sort_unstable();
        let last = self.0.len().saturating_sub(1);
        let at = (share * last as f64).round() as usize;
        self.0.get(at).copied().unwrap_or_default()
    }

    pub(crate) fn median(&mut self) -> Duration {
        self.percentile(0.5)
    }

    /// Returns text such as "median 9.2 µs, p99 85.1 µs"
    pub(crate) fn summary(&mut self) -> String {
        format!("median {}, p99 {}", show(self.median()), show(self.percentile(0.99)))
    }
}

/// Formats a time with about three digits.
pub(crate) fn show(time: Duration) -> String {
    let seconds = time.as_secs_f64();
    match seconds {
        s if s < 1e-3 => format!("{:.1} µs", s * 1e6),
        s if s < 1.0 => format!("{:.2} ms", s * 1e3),
        s => format!("{s:.2} s"),
    }
}

/// Returns the ratio of two times.
pub(crate) fn ratio(long: Duration, short: Duration) -> f64 {
    long.as_secs_f64() / short.as_secs_f64().max(1e-12)
}

/// Formats a number with at least three digits.
pub(crate) fn digits(number: f64) -> String {
    match number.abs() {
        small if small < 1.0 => format!("{number:.3}"),
        small if small < 10.0 => format!("{number:.2}"),
        middle if middle < 1000.0 => format!("{number:.1}"),
        _ => format!("{number:.0}"),
    }
}

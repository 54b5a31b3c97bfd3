//! One measurement: prompts, and the arrival time of each token.

use std::time::Duration;

use crate::stats::Times;

/// Prompts of equal length, and the number of tokens to generate.
#[derive(Debug, Clone)]
pub(super) struct Workload {
    pub(super) prompts: Vec<Vec<u32>>,
    /// Tokens to generate per prompt.
    pub(super) tokens: u32,
}

/// The times from sending the prompts to the arrival of each token, per prompt.
#[derive(Debug)]
pub(super) struct Trial {
    pub(super) streams: Vec<Vec<Duration>>,
}

impl Trial {
    /// Returns the tokens per second between two points: when every prompt has its first token, and
    /// when the last token arrives.
    pub(super) fn decoded(&self) -> f64 {
        let start = self.first().percentile(1.0);
        let later = || self.streams.iter().flatten().filter(|&&at| at > start);
        let end = later().max().copied().unwrap_or(start);
        later().count() as f64 / (end - start).as_secs_f64()
    }

    /// Returns the tokens per second of the whole run, including prefill and waiting.
    pub(super) fn throughput(&self) -> f64 {
        let all = || self.streams.iter().flatten();
        all().count() as f64 / all().max().copied().unwrap_or_default().as_secs_f64()
    }

    /// Returns the time to the first token of each prompt.
    pub(super) fn first(&self) -> Times {
        let mut times = Times::default();
        self.streams.iter().filter_map(|stream| stream.first()).for_each(|&time| times.add(time));
        times
    }

    /// Returns the times between tokens.
    pub(super) fn gaps(&self) -> Times {
        let mut times = Times::default();
        let pairs = self.streams.iter().flat_map(|stream| stream.windows(2));
        pairs.for_each(|pair| times.add(pair[1] - pair[0]));
        times
    }
}

//! One measurement: prompts, and when each token was there.

use std::time::Duration;

use crate::stats::Times;

/// What to generate. All prompts are of one length.
#[derive(Debug, Clone)]
pub(super) struct Work {
    pub(super) prompts: Vec<Vec<u32>>,
    /// To generate for each prompt.
    pub(super) tokens: u32,
}

/// When each token of each prompt was there, since all prompts were sent.
#[derive(Debug)]
pub(super) struct Run {
    pub(super) streams: Vec<Vec<Duration>>,
}

impl Run {
    /// Tokens per second from when every prompt has its first token to the last token of all.
    pub(super) fn decoded(&self) -> f64 {
        let start = self.first().percentile(1.0);
        let later = || self.streams.iter().flatten().filter(|&&at| at > start);
        let end = later().max().copied().unwrap_or(start);
        later().count() as f64 / (end - start).as_secs_f64()
    }

    /// All tokens per second, prompts and waiting included.
    pub(super) fn throughput(&self) -> f64 {
        let all = || self.streams.iter().flatten();
        all().count() as f64 / all().max().copied().unwrap_or_default().as_secs_f64()
    }

    /// Time to the first token of each prompt.
    pub(super) fn first(&self) -> Times {
        let mut times = Times::default();
        self.streams.iter().filter_map(|stream| stream.first()).for_each(|&time| times.add(time));
        times
    }

    /// Times between tokens.
    pub(super) fn gaps(&self) -> Times {
        let mut times = Times::default();
        let pairs = self.streams.iter().flat_map(|stream| stream.windows(2));
        pairs.for_each(|pair| times.add(pair[1] - pair[0]));
        times
    }
}

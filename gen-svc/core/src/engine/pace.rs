//! The time that the tokens of prompts take, so that other work can be counted in tokens.

use std::time::Duration;

/// The fewest tokens of a step whose time is used. A smaller one has too much overhead.
const MIN_TOKENS: usize = 64;

/// The time of a token in the last large step.
#[derive(Debug, Default, Clone, Copy)]
pub(super) struct Pace(Option<Duration>);

impl Pace {
    /// Uses the time of a step with this number of tokens, if it is large.
    pub(super) fn observe(&mut self, tokens: usize, time: Duration) {
        if tokens >= MIN_TOKENS {
            self.0 = Some(time / u32::try_from(tokens).unwrap_or(u32::MAX));
        }
    }

    /// Returns the number of tokens that take as long as `time`, rounded up. None before the first
    /// large step.
    pub(super) fn tokens(self, time: Duration) -> Option<usize> {
        let per_token = self.0?.max(Duration::from_nanos(1));
        Some(usize::try_from(time.as_nanos().div_ceil(per_token.as_nanos())).unwrap_or(usize::MAX))
    }
}

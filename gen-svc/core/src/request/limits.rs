//! The end conditions of an output.

use super::reasoning::Stage;

/// The part of the new tokens that reasoning before a grammar may take, unless the request has a limit: three
/// quarters.
const REASONING_PART: (usize, usize) = (3, 4);

/// The end conditions of an output, with defaults applied.
#[derive(Debug, Clone, PartialEq)]
pub struct Limits {
    /// The maximum number of new tokens. At least 1, at most the rest of the context.
    pub max_new_tokens: usize,
    /// The minimum number of new tokens. No earlier token may end the output.
    pub min_new_tokens: usize,
    /// The maximum number of reasoning tokens, before the end marker. `None`: any number.
    pub max_reasoning_tokens: Option<usize>,
    /// The request's stop strings, then those of the output spec.
    pub stop_strings: Vec<String>,
    /// The request's stop ids, then the eos ids unless they are ignored.
    pub stop_token_ids: Vec<u32>,
    /// True if eos ids do not end the output.
    pub ignore_eos: bool,
    /// True if the request's stop string or stop token is part of the text.
    pub include_stop: bool,
}

impl Limits {
    /// Sets the limit of reasoning that a grammar follows, unless there is one.
    pub(super) fn limit_reasoning(&mut self, stage: Stage) {
        let (part, of) = REASONING_PART;
        let limit = matches!(stage, Stage::Opening | Stage::Waiting).then(|| self.max_new_tokens * part / of);
        self.max_reasoning_tokens = self.max_reasoning_tokens.or(limit);
    }
}

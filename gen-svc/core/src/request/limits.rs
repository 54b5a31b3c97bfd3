//! The end conditions of an output.

/// The end conditions of an output, with defaults applied.
#[derive(Debug, Clone, PartialEq)]
pub struct Limits {
    /// The maximum number of new tokens. At least 1, at most the rest of the context.
    pub max_new_tokens: usize,
    /// The minimum number of new tokens. No earlier token may end the output.
    pub min_new_tokens: usize,
    /// The request's stop strings, then those of the output spec.
    pub stop_strings: Vec<String>,
    /// The request's stop ids, then the eos ids unless they are ignored.
    pub stop_token_ids: Vec<u32>,
    /// True if eos ids do not end the output.
    pub ignore_eos: bool,
    /// True if the request's stop string or stop token is part of the text.
    pub include_stop: bool,
}

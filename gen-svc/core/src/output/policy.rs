//! The policy of an output: which tokens and strings end it, and which leave no text.

use super::reasoning::Markers;

/// The rules for reading an output.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct OutputPolicy {
    /// Ids that end the output: eos ids and the request's stop ids. They leave no text, unless they
    /// are in `passed`.
    pub end_token_ids: Vec<u32>,
    /// Strings that end the output. Empty strings match nothing.
    pub stop_strings: Vec<String>,
    /// The number of leading stop strings that are part of the text when they end it.
    pub shown_stop_strings: usize,
    /// Ids that separate turns, besides the tokenizer's special tokens.
    pub control_token_ids: Vec<u32>,
    /// Ids that leave no text although they are not special, such as eos ids that do not end the
    /// output.
    pub dropped: Vec<u32>,
    /// Ids that are text although they are special. They take precedence over `dropped`.
    pub passed: Vec<u32>,
    /// The markers that enclose reasoning.
    pub reasoning: Markers,
}

//! How the ids and the text of an output are read.

use super::reasoning::Markers;

/// How the ids and the text of an output are read.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Spec {
    /// Ids that end the output: eos ids and the request's stop ids. They add no text, unless they
    /// are in `passed`.
    pub end_token_ids: Vec<u32>,
    /// Strings that end the output. Empty strings match nothing.
    pub stop_strings: Vec<String>,
    /// The number of first stop strings that stay in the text.
    pub shown_stop_strings: usize,
    /// Ids that separate turns, besides the tokenizer's special ids.
    pub control_token_ids: Vec<u32>,
    /// Ids that add no text although they are not special to the tokenizer, such as eos ids that do
    /// not end the output.
    pub dropped: Vec<u32>,
    /// Ids that are text although they are special to the tokenizer. They override `dropped`.
    pub passed: Vec<u32>,
    /// The markers of reasoning.
    pub reasoning: Markers,
}

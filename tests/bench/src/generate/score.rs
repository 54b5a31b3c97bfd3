//! How well a model predicts a text.

/// Probabilities of the tokens of a text, without its first token.
#[derive(Debug, Clone, Default)]
pub(super) struct Score {
    /// Natural logarithms.
    pub(super) logprobs: Vec<f64>,
    /// The most probable token at each position.
    pub(super) likeliest: Vec<u32>,
}

//! The uses of a step's rows of logits.

use super::logprobs::Logprobs;
use super::parameters::Sampling;
use super::slot::History;

/// The use of a row.
#[derive(Debug)]
pub struct RowPlan<'a> {
    /// The index of the row.
    pub row: usize,
    pub token: TokenPlan<'a>,
    /// The number of likeliest tokens with their log-probabilities. None: no log-probability.
    pub logprobs: Option<usize>,
}

/// The token of a row.
#[derive(Debug)]
pub enum TokenPlan<'a> {
    /// A token of the prompt.
    Given(u32),
    /// A token that is drawn.
    Drawn(Draw<'a>),
    /// The token is drawn later: the backend keeps the row.
    Kept,
    /// The token is drawn later, on the host: the row is copied to it.
    Fetched,
}

/// How a token is drawn.
#[derive(Debug)]
pub struct Draw<'a> {
    /// The parameters.
    pub sampling: &'a Sampling,
    /// A number in 0 .. 1.
    pub random: f64,
    /// Tokens that are excluded.
    pub forbidden: &'a [u32],
    /// The tokens whose bit is set. None: all.
    pub allowed: Option<&'a [u32]>,
    /// The tokens that penalties apply to. None: there are no penalties.
    pub history: Option<History<'a>>,
}

/// A row's token.
#[derive(Debug, Clone, PartialEq)]
pub struct Chosen {
    /// The token id.
    pub id: u32,
    /// The log-probabilities, if they are planned.
    pub logprobs: Option<Logprobs>,
}

impl<'a> RowPlan<'a> {
    pub fn draw(&self) -> Option<&Draw<'a>> {
        match &self.token {
            TokenPlan::Drawn(draw) => Some(draw),
            TokenPlan::Given(_) | TokenPlan::Kept | TokenPlan::Fetched => None,
        }
    }
}

//! The interface of attention over keys and values in blocks.
//!
//! Shapes: T tokens of a call, K key/value heads, H query heads, D head size.

use std::fmt::Debug;

use tch::Tensor;

use crate::error::Error;

/// Attention of the chunks of one call by the rules of one reach. The chunks are
/// [sorted](super::runs::order).
pub(super) trait PagedAttention: Debug {
    /// Computes attention of each token over the positions that it sees: `q [T, H, D]`,
    /// `pairs [slots, 2, K, D]`.
    fn attend(&self, q: &Tensor, pairs: &Tensor, scores: Scores) -> Result<Attended, Error>;
}

/// The settings of a layer's scores.
#[derive(Debug, Clone, Copy)]
pub(super) struct Scores {
    /// The factor of scores.
    pub(super) scale: f64,
    /// True if the logarithms of the sums are needed.
    pub(super) with_log_sums: bool,
}

/// The result of attention.
#[derive(Debug)]
pub(super) struct Attended {
    /// `[T, H * D]`
    pub(super) rows: Tensor,
    /// `[T, H]` in f32, the logarithms of the sums of the exponentials of scores.
    pub(super) log_sums: Option<Tensor>,
}

impl Attended {
    /// Joins the results of adjacent tokens, along the dimension of tokens.
    pub(super) fn join(mut parts: Vec<Self>, dimension: i64) -> Result<Self, Error> {
        if parts.len() == 1 {
            return Ok(parts.remove(0));
        }
        let (rows, log_sums): (Vec<_>, Vec<_>) = parts.into_iter().map(|part| (part.rows, part.log_sums)).unzip();
        let log_sums: Option<Vec<Tensor>> = log_sums.into_iter().collect();
        Ok(Self {
            rows: Tensor::f_cat(&rows, dimension)?,
            log_sums: log_sums.map(|log_sums| Tensor::f_cat(&log_sums, dimension)).transpose()?,
        })
    }
}

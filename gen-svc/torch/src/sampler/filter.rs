//! Selects the tokens that may be drawn, as the host does: temperature, top-k, top-p, min-p.
//!
//! Shapes: S rows that are drawn at random, V vocabulary, L likeliest tokens that are ranked.

use tandem_core::sampling::Draw;
use tch::{Kind, Tensor};

use super::cumulative::Cumulative;
use crate::device::upload::{Part, Sent, Upload};
use crate::error::Error;

/// The parameters of S rows, in the upload.
#[derive(Debug)]
pub(super) struct Filters {
    /// The factor of logits.
    factor: Part,
    /// Indexes of the K-th largest logits, and zero or minus infinity, which is added to the K-th.
    top_k: Option<TopK>,
    /// Infinite: all tokens are kept.
    top_p: Option<Part>,
    min_p: Option<Part>,
    random: Part,
    /// L.
    ranked: i64,
}

#[derive(Debug)]
struct TopK {
    /// The largest K.
    largest: i64,
    index: Part,
    offset: Part,
}

/// The tokens of S rows.
#[derive(Debug)]
pub(super) struct Drawn {
    /// `[S, 1]`
    pub(super) ids: Tensor,
    /// `[S, 1]`, false if more tokens must be ranked to draw the right one. None: all are drawn.
    pub(super) is_final: Option<Tensor>,
}

impl Filters {
    /// Adds the parameters of draws to an upload. At most `ranked` tokens of a row are ranked.
    pub(super) fn new(draws: &[&Draw<'_>], vocabulary: usize, ranked: usize, upload: &mut Upload) -> Self {
        let sampling = || draws.iter().map(|draw| draw.sampling);
        // A K of the vocabulary or above keeps all tokens.
        let k = |k: u32| if (k as usize) < vocabulary { k } else { 0 };
        let largest = sampling().map(|it| k(it.top_k)).max().filter(|&k| k > 0);
        let top_k = largest.map(|largest| TopK {
            largest: i64::from(largest),
            index: upload.add(sampling().map(|it| i64::from(k(it.top_k).saturating_sub(1)))),
            offset: upload.add(sampling().map(|it| if k(it.top_k) > 0 { 0.0 } else { f32::NEG_INFINITY })),
        });
        let share = |top_p: f32| if top_p < 1.0 { f64::from(top_p) } else { f64::INFINITY };
        Self {
            factor: upload.add(sampling().map(|it| it.temperature.recip().min(f32::MAX))),
            top_k,
            top_p: sampling().any(|it| it.top_p < 1.0).then(|| upload.add(sampling().map(|it| share(it.top_p)))),
            min_p: sampling().any(|it| it.min_p > 0.0).then(|| upload.add(sampling().map(|it| it.min_p))),
            random: upload.add(draws.iter().map(|draw| draw.random)),
            ranked: ranked.min(vocabulary) as i64,
        }
    }

    /// Draws a token of each row: `[S, V]` logits, `[S, 1]` the largest of each row.
    pub(super) fn draw(&self, logits: &Tensor, best: &Tensor, sent: &Sent) -> Result<Drawn, Error> {
        let logits = match &self.top_k {
            None => logits.shallow_clone(),
            Some(top_k) => top_k.apply(logits, sent)?,
        };
        let mut weights = logits.f_sub(best)?.f_mul(&sent.column(self.factor)?)?.f_exp()?;
        let mut is_final = None;
        if let Some(top_p) = self.top_p {
            let (kept, covers) = nucleus(&weights, &sent.column(top_p)?, self.ranked)?;
            weights = weights.f_mul(&kept.f_to_kind(Kind::Float)?)?;
            is_final = Some(covers);
        }
        if let Some(min_p) = self.min_p {
            weights = weights.f_masked_fill(&weights.f_lt_tensor(&sent.column(min_p)?)?, 0.0)?;
        }
        let sums = Cumulative::new(&weights)?;
        let ids = sums.find(&sums.totals()?.f_mul(&sent.column(self.random)?)?)?;
        Ok(Drawn { ids, is_final })
    }
}

impl TopK {
    /// Excludes the tokens below the K-th largest logit.
    fn apply(&self, logits: &Tensor, sent: &Sent) -> Result<Tensor, Error> {
        let (largest, _) = logits.f_topk(self.largest, 1, true, true)?;
        let least = largest.f_gather(1, &sent.column(self.index)?, false)?.f_add(&sent.column(self.offset)?)?;
        Ok(logits.f_masked_fill(&logits.f_lt_tensor(&least)?, f64::NEG_INFINITY)?)
    }
}

/// Returns which tokens are among the fewest likeliest whose weights reach `share` of the sum, of equal
/// ones the smaller id first: `[S, V], [S, 1] -> [S, V]`. Also returns the rows whose `ranked` likeliest
/// tokens suffice to decide this: `[S, 1]`
fn nucleus(weights: &Tensor, share: &Tensor, ranked: i64) -> Result<(Tensor, Tensor), Error> {
    let (_, vocabulary) = weights.size2()?;
    let sums = Cumulative::new(weights)?;
    let enough = sums.totals()?.f_mul(share)?;
    let (largest, _) = weights.f_topk(ranked, 1, true, true)?;
    let before = largest.f_cumsum(1, Kind::Double)?.f_constant_pad_nd([1, -1])?;
    let count = before.f_lt_tensor(&enough)?.f_sum_dim_intlist(&[1_i64][..], true, Kind::Int64)?;
    let is_unlimited = share.f_isinf()?;
    let covers = count.f_lt(ranked)?.f_logical_or(&is_unlimited)?;
    let covers = if ranked == vocabulary { covers.f_ones_like()? } else { covers };
    // The last token that is kept, and as many of its weight as were counted.
    let last = largest.f_gather(1, &count.f_sub_scalar(1_i64)?.f_clamp_min(0_i64)?, false)?;
    let above = largest.f_gt_tensor(&last)?.f_sum_dim_intlist(&[1_i64][..], true, Kind::Int64)?;
    let equal = weights.f_eq_tensor(&last)?;
    let wanted = count.f_sub(&above)?.f_to_kind(Kind::Double)?.f_sub_scalar(0.5)?;
    let last_id = Cumulative::new(&equal.f_to_kind(Kind::Float)?)?.find(&wanted)?;
    let ids = Tensor::f_arange(vocabulary, (Kind::Int64, weights.device()))?;
    let equal = equal.f_logical_and(&ids.f_le_tensor(&last_id)?)?;
    let kept = weights.f_gt_tensor(&last)?.f_logical_or(&equal)?.f_logical_or(&is_unlimited)?;
    Ok((kept, covers))
}

//! The visible positions of a chunk, and attention over them.
//!
//! Shapes: L tokens of a chunk, S positions that a token of it sees, K key/value heads, H query
//! heads, G = H / K query heads per key/value head, D head size.

use tch::{Kind, Tensor};

use super::layers::softcap;
use crate::error::Error;
use crate::models::SequenceChunk;
use crate::models::decoder;
use crate::weights::TorchTarget;

/// The settings of a layer's attention.
#[derive(Debug, Clone, Copy)]
pub(super) struct View {
    /// The factor of scores.
    pub(super) scale: f64,
    /// Bounds scores.
    pub(super) softcap: Option<f32>,
    /// The index of the reach.
    pub(super) reach: usize,
}

/// The rule for the positions that a token sees.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Reach {
    window: Option<usize>,
    image_blocks: bool,
}

impl Reach {
    /// Returns the rule of a layer.
    pub(super) fn of(attention: &decoder::Attention) -> Self {
        Self { window: attention.window, image_blocks: attention.image_blocks }
    }
}

/// The visible positions of a chunk within one reach.
#[derive(Debug)]
pub(super) struct Seen {
    /// `[S]`, the slots of the positions.
    pub(super) slots: Tensor,
    mask: Mask,
}

/// The visible positions of each token.
#[derive(Debug)]
enum Mask {
    /// Every token sees every position.
    Open,
    /// A token sees the positions up to its own. libtorch computes this mask.
    Causal,
    /// `[L, S]`, minus infinity where a token must not look.
    Given(Tensor),
}

impl Seen {
    /// Computes the positions of a chunk's tokens. Each sees the last `window` positions up to its own,
    /// and the later positions of its image. `sequence` is `[past + L]`, the slots.
    pub(super) fn new(
        sequence: &Tensor,
        chunk: &SequenceChunk<'_>,
        reach: Reach,
        target: TorchTarget,
    ) -> Result<Self, Error> {
        let (past, length) = (chunk.past as i64, chunk.tokens.len() as i64);
        let window = reach.window.map(|window| window as i64);
        let first = window.map_or(0, |window| (past + 1 - window).max(0)); // that any of them sees
        let past = past - first;
        let count = past + length;
        let mask = match window {
            _ if reach.image_blocks && !chunk.images.is_empty() => {
                let ends: Vec<i64> = chunk.ends().map(|end| end as i64 - first).collect();
                Mask::Given(mask_until(&ends, past, window, target)?)
            }
            _ if length == 1 => Mask::Open,
            Some(window) if window < count => Mask::Given(mask(length, past, Some(window), target)?),
            _ if past == 0 => Mask::Causal,
            _ => Mask::Given(mask(length, past, None, target)?),
        };
        Ok(Self { slots: sequence.f_narrow(0, first, count)?, mask })
    }

    /// Grouped-query attention: `q [L, H, D], k and v [K, S, D] -> [L, H * D]`
    pub(super) fn attend(&self, q: &Tensor, k: &Tensor, v: &Tensor, view: View) -> Result<Tensor, Error> {
        let (length, heads, size) = q.size3()?;
        let (groups, count, _) = k.size3()?;
        let group = heads / groups;
        if length == 1 && view.softcap.is_none() {
            // The G heads of a group are the query rows of one product with its keys.
            let q = q.f_view([1, groups, group, size])?;
            let attended = sdpa(&q, &k.f_unsqueeze(0)?, &v.f_unsqueeze(0)?, None, false, view.scale)?;
            return Ok(attended.f_reshape([1, heads * size])?);
        }
        let q = q.f_view([length, groups, group, size])?.f_permute([1, 2, 0, 3])?; // [K, G, L, D]
        let shared = |x: &Tensor| x.f_unsqueeze(1)?.f_expand([groups, group, count, size], false);
        let (k, v) = (shared(k)?, shared(v)?); // [K, G, S, D]
        let attended = match view.softcap {
            None => sdpa(&q, &k, &v, self.mask.given(), matches!(self.mask, Mask::Causal), view.scale)?,
            Some(_) => self.capped(&q, &k, &v, view)?,
        }; // [K, G, L, D]
        Ok(attended.f_permute([2, 0, 1, 3])?.f_reshape([length, heads * size])?)
    }

    /// Computes attention with bounded scores, which libtorch has no function for.
    fn capped(&self, q: &Tensor, k: &Tensor, v: &Tensor, view: View) -> Result<Tensor, Error> {
        let scores = q.f_matmul(&k.f_transpose(2, 3)?)?.f_mul_scalar(view.scale)?; // [K, G, L, S]
        let scores = softcap(scores, view.softcap)?;
        let masked = match &self.mask {
            Mask::Open => scores,
            Mask::Given(mask) => scores.f_add(mask)?,
            Mask::Causal => scores.f_add(&scores.f_full_like(f64::NEG_INFINITY)?.f_triu(1)?)?,
        };
        let weights = masked.f_softmax(-1, Kind::Float)?.f_to_kind(v.f_kind()?)?;
        Ok(weights.f_matmul(v)?)
    }
}

impl Mask {
    fn given(&self) -> Option<&Tensor> {
        if let Self::Given(mask) = self { Some(mask) } else { None }
    }
}

/// Returns `[L, past + L]`, minus infinity for later positions and for positions before the window.
fn mask(length: i64, past: i64, window: Option<i64>, target: TorchTarget) -> Result<Tensor, Error> {
    let hidden = Tensor::f_full([length, past + length], f64::NEG_INFINITY, (target.dtype, target.device))?;
    let ahead = hidden.f_triu(past + 1)?;
    match window {
        None => Ok(ahead),
        Some(window) => Ok(ahead.f_add(&hidden.f_tril(past - window)?)?),
    }
}

/// Returns `[L, past + L]`, minus infinity from each token's end on and before its window.
fn mask_until(ends: &[i64], past: i64, window: Option<i64>, target: TorchTarget) -> Result<Tensor, Error> {
    let length = ends.len() as i64;
    let columns = Tensor::f_arange(past + length, (Kind::Int64, target.device))?;
    let ends = Tensor::f_from_slice(ends)?.f_to_device(target.device)?.f_unsqueeze(1)?;
    let hidden = Tensor::f_full([length, past + length], f64::NEG_INFINITY, (target.dtype, target.device))?;
    let ahead = hidden.f_zeros_like()?.f_masked_fill(&columns.f_ge_tensor(&ends)?, f64::NEG_INFINITY)?;
    match window {
        None => Ok(ahead),
        Some(window) => Ok(ahead.f_add(&hidden.f_tril(past - window)?)?),
    }
}

fn sdpa(q: &Tensor, k: &Tensor, v: &Tensor, mask: Option<&Tensor>, causal: bool, scale: f64) -> Result<Tensor, Error> {
    Ok(Tensor::f_scaled_dot_product_attention(q, k, v, mask, 0.0, causal, Some(scale), false)?)
}

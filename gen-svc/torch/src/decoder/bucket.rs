//! Attention of the sequences of one bucket.
//!
//! A bucket is one call, or several where its scores exceed the bound of the [workspace](Workspace): each then
//! computes some tokens of every sequence. A token's arithmetic is the same.
//!
//! Shapes: B sequences, L tokens of the longest chunk, S visible positions of the longest, n tokens of a
//! call, K key/value heads, H query heads, G = H / K query heads per key/value head, D head size.

use tch::{Kind, Tensor};

use super::attend::{Attended, Scores};
use super::mask::Mask;
use super::reach::Visible;
use super::workspace::Workspace;
use crate::device::upload::{Later, Upload};
use crate::error::Error;
use crate::target::TorchTarget;

/// Sequences that are padded to the same size.
#[derive(Debug)]
pub(super) struct Bucket {
    /// B, L, S.
    size: [i64; 3],
    /// The most tokens of each sequence that a call computes.
    at_once: usize,
    /// `[B * S]`, the slots of the positions. Padding repeats a slot of the same sequence.
    pub(super) slots: Tensor,
    rows: Rows,
    /// `None`: a token sees the positions up to its own, and libtorch computes this mask.
    mask: Option<Mask>,
    /// The bound of scores.
    cap: Option<Cap>,
}

/// The sequences of a bucket.
#[derive(Debug, Clone, Copy)]
pub(super) struct Members<'a> {
    pub(super) sequences: &'a [Visible],
    /// The slots of each one's visible positions.
    pub(super) slots: &'a [Vec<i64>],
    /// L and S.
    pub(super) size: [usize; 2],
}

/// The rules of a bucket.
#[derive(Debug, Clone, Copy)]
pub(super) struct Rules {
    /// The bound of scores, if they have one.
    pub(super) softcap: Option<f32>,
    pub(super) target: TorchTarget,
    pub(super) workspace: Workspace,
}

/// The bucket's rows among the tokens of the call.
#[derive(Debug)]
enum Rows {
    /// Every sequence has L tokens. The first row.
    Adjacent(i64),
    /// Some have fewer.
    Padded {
        /// `[B * L]`, the rows.
        rows: Tensor,
        /// The indexes in `rows` that are no padding.
        kept: Tensor,
    },
}

/// A bound of scores.
#[derive(Debug)]
struct Cap {
    bound: f64,
    /// `[1]`
    on_device: Tensor,
}

/// Some tokens of each sequence, with their keys and their mask.
#[derive(Debug, Clone, Copy)]
struct Part<'a> {
    /// `[B, n, H, D]`
    q: &'a Tensor,
    /// `[B, K, S, D]`
    k: &'a Tensor,
    /// `[B, 1, n, S]`. `None`: causal.
    mask: Option<&'a Tensor>,
    scale: f64,
}

impl Members<'_> {
    /// B, L, S.
    fn shape(&self) -> [usize; 3] {
        [self.sequences.len(), self.size[0], self.size[1]]
    }

    /// Returns true if libtorch computes the mask.
    fn is_causal(&self, Rules { softcap, target, workspace }: Rules) -> bool {
        let [_, tokens, _] = self.shape();
        let is_one = matches!(self.sequences, [one] if tokens > 1 && one.is_causal());
        let is_whole = workspace.tokens_at_once(self.shape(), true) == tokens;
        is_one && is_whole && softcap.is_none() && !target.batch_invariant
    }

    /// Returns the numbers of the mask.
    pub(super) fn mask_numbers(&self, rules: Rules) -> usize {
        if self.is_causal(rules) { 0 } else { self.shape().iter().product() }
    }
}

impl Bucket {
    /// Plans the bucket of adjacent sequences. `first_row` is the row of their first token. The mask may be
    /// kept for the step.
    pub(super) fn plan(
        first_row: usize,
        members: Members<'_>,
        (keeps_mask, rules): (bool, Rules),
        upload: &mut Upload,
    ) -> Later<Self> {
        let Members { sequences, slots, size } = members;
        let Rules { softcap, target, workspace } = rules;
        let is_causal = members.is_causal(rules);
        let at_once = workspace.tokens_at_once(members.shape(), is_causal);
        let shape = members.shape().map(|length| length as i64);
        let slots = upload.add(slots.iter().flat_map(|slots| padded(slots, size[1])));
        let rows = Rows::plan(first_row, sequences, size[0], upload);
        let mask = (!is_causal).then(|| Mask::plan(sequences, size, (keeps_mask, target), upload));
        Box::new(move |sent| {
            Ok(Self {
                size: shape,
                at_once,
                slots: sent.get(slots)?,
                rows: rows(sent)?,
                mask: mask.map(|mask| mask(sent)).transpose()?,
                cap: softcap.map(|cap| Cap::new(cap, target)).transpose()?,
            })
        })
    }

    /// Grouped-query attention of the bucket's rows of T: `q [T, H, D], pairs [B * S, 2, K, D]`.
    pub(super) fn attend(&self, q: &Tensor, pairs: &Tensor, scores: Scores) -> Result<Attended, Error> {
        let [sequences, tokens, positions] = self.size;
        let (_, heads, size) = q.size3()?;
        let groups = pairs.size()[2];
        let q = self.rows.pick(q, sequences * tokens)?.f_view([sequences, tokens, heads, size])?;
        let pairs = pairs.f_view([sequences, positions, 2, groups, size])?.f_permute([2, 0, 3, 1, 4])?;
        let kv = [&pairs.f_select(0, 0)?, &pairs.f_select(0, 1)?]; // [B, K, S, D]
        let starts = (0..tokens).step_by(self.at_once);
        let parts = starts.map(|start| self.attend_part(&q, kv, start, scores)).collect::<Result<_, _>>()?;
        let Attended { rows, log_sums } = Attended::join(parts, 1)?;
        let log_sums = log_sums.map(|log_sums| self.rows.keep(log_sums.f_reshape([sequences * tokens, heads])?));
        Ok(Attended {
            rows: self.rows.keep(rows.f_view([sequences * tokens, heads * size])?)?,
            log_sums: log_sums.transpose()?,
        })
    }

    /// Computes some tokens of each sequence from `start` on: rows `[B, n, H * D]` and log-sums `[B, n, H]`.
    fn attend_part(&self, q: &Tensor, [k, v]: [&Tensor; 2], start: i64, scores: Scores) -> Result<Attended, Error> {
        let count = (self.size[1] - start).min(self.at_once as i64);
        let mask = self.mask.as_ref().map(|mask| mask.part(start, count)).transpose()?;
        let q = q.f_narrow(1, start, count)?;
        let part = Part { q: &q, k, mask: mask.as_ref(), scale: scores.scale };
        let attended = match (&self.cap, &mask) {
            (Some(cap), Some(mask)) => average(&part.capped(cap, mask)?, v)?,
            _ => part.sdpa(v)?,
        };
        let log_sums = scores.with_log_sums.then(|| part.log_sums(self.cap.as_ref())).transpose()?;
        Ok(Attended { rows: attended.f_reshape([self.size[0], count, -1])?, log_sums })
    }
}

impl Part<'_> {
    /// Computes attention with libtorch's own function, causally without a mask:
    /// `[B, K, S, D] -> [B, n, H, D]`, or `[B, K, G, D]` with n = 1.
    fn sdpa(self, v: &Tensor) -> Result<Tensor, Error> {
        let Self { q, k, mask, scale } = self;
        let (sequences, tokens, heads, size) = q.size4()?;
        let groups = k.size()[1];
        let sdpa = |q: &Tensor, grouped| {
            Tensor::f_scaled_dot_product_attention(q, k, v, mask, 0.0, mask.is_none(), Some(scale), grouped)
        };
        if tokens == 1 {
            // The G heads of a group are the query rows of one product with its keys.
            return Ok(sdpa(&q.f_view([sequences, groups, heads / groups, size])?, false)?);
        }
        Ok(sdpa(&q.f_transpose(1, 2)?, groups != heads)?.f_transpose(1, 2)?)
    }

    /// Computes scores with a bound, which libtorch has no attention for, and masks them: `[B, H, n, S]`
    fn capped(self, cap: &Cap, mask: &Tensor) -> Result<Tensor, Error> {
        let bounded = self.products(self.scale / cap.bound)?.f_tanh_()?;
        Ok(mask.f_addcmul(&bounded, &cap.on_device)?)
    }

    /// Multiplies queries, a factor and keys: `[B, H, n, S]`
    fn products(self, scale: f64) -> Result<Tensor, Error> {
        let (sequences, tokens, heads, size) = self.q.size4()?;
        let (_, groups, positions, _) = self.k.size4()?;
        let q = self.q.f_mul_scalar(scale)?.f_view([sequences, tokens, groups, heads / groups, size])?;
        let q = q.f_permute([0, 2, 3, 1, 4])?.f_reshape([sequences, groups, -1, size])?; // [B, K, G * n, D]
        Ok(q.f_matmul(&self.k.f_transpose(2, 3)?)?.f_view([sequences, heads, tokens, positions])?)
    }

    /// Returns the logarithms of the sums of the exponentials of scores, `[B, n, H]`.
    fn log_sums(self, cap: Option<&Cap>) -> Result<Tensor, Error> {
        let (q, k) = (self.q.f_to_kind(Kind::Float)?, self.k.f_to_kind(Kind::Float)?);
        let part = Part { q: &q, k: &k, ..self };
        let scores = match (cap, self.mask) {
            (Some(cap), Some(mask)) => part.capped(cap, mask)?,
            (_, Some(mask)) => part.products(self.scale)?.f_add(mask)?,
            (_, None) => {
                let shape = [q.size()[1], k.size()[2]];
                let later = Tensor::f_ones(shape, (Kind::Bool, q.device()))?.f_triu(1)?;
                part.products(self.scale)?.f_masked_fill(&later, f64::NEG_INFINITY)?
            }
        };
        Ok(scores.f_to_kind(Kind::Float)?.f_logsumexp([-1], false)?.f_transpose(1, 2)?)
    }
}

/// Averages values by scores: `[B, H, n, S], [B, K, S, D] -> [B, n, H, D]`
fn average(scores: &Tensor, v: &Tensor) -> Result<Tensor, Error> {
    let (sequences, heads, tokens, positions) = scores.size4()?;
    let (_, groups, _, size) = v.size4()?;
    let weights = scores.f_softmax(-1, v.f_kind()?)?;
    let attended = weights.f_view([sequences, groups, -1, positions])?.f_matmul(v)?;
    Ok(attended.f_view([sequences, heads, tokens, size])?.f_transpose(1, 2)?)
}

impl Cap {
    fn new(cap: f32, target: TorchTarget) -> Result<Self, Error> {
        let bound = f64::from(cap);
        Ok(Self { bound, on_device: Tensor::f_full([1], bound, (target.dtype, target.device))? })
    }
}

impl Rows {
    fn plan(first_row: usize, sequences: &[Visible], tokens: usize, upload: &mut Upload) -> Later<Self> {
        if sequences.iter().all(|sequence| sequence.of_tokens.len() == tokens) {
            return Box::new(move |_| Ok(Self::Adjacent(first_row as i64)));
        }
        let (mut rows, mut kept) = (Vec::new(), Vec::new());
        let mut next = first_row as i64;
        for sequence in sequences {
            let own: Vec<i64> = (next..).take(sequence.of_tokens.len()).collect();
            kept.extend((rows.len() as i64..).take(own.len()));
            rows.extend(padded(&own, tokens));
            next += own.len() as i64;
        }
        let (rows, kept) = (upload.add(rows), upload.add(kept));
        Box::new(move |sent| Ok(Self::Padded { rows: sent.get(rows)?, kept: sent.get(kept)? }))
    }

    /// Returns the bucket's rows with padding.
    fn pick(&self, all: &Tensor, count: i64) -> Result<Tensor, Error> {
        match self {
            Self::Adjacent(first) => Ok(all.f_narrow(0, *first, count)?),
            Self::Padded { rows, .. } => Ok(all.f_index_select(0, rows)?),
        }
    }

    /// Removes the padding.
    fn keep(&self, rows: Tensor) -> Result<Tensor, Error> {
        match self {
            Self::Adjacent(_) => Ok(rows),
            Self::Padded { kept, .. } => Ok(rows.f_index_select(0, kept)?),
        }
    }
}

/// Repeats the first number until there are `length`.
fn padded(numbers: &[i64], length: usize) -> impl Iterator<Item = i64> {
    let first = numbers.iter().copied().take(1).cycle();
    numbers.iter().copied().chain(first).take(length)
}

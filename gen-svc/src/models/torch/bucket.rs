//! Attention of the sequences of one bucket in one call.
//!
//! Shapes: B sequences, L tokens of the longest chunk, S visible positions of the longest, K key/value
//! heads, H query heads, G = H / K query heads per key/value head, D head size.

use tch::{Kind, Tensor};

use super::attend::{Attended, Scores};
use super::reach::Visible;
use crate::device::upload::{Later, Upload};
use crate::error::Error;
use crate::weights::TorchTarget;

/// Sequences that are padded to the same size.
#[derive(Debug)]
pub(super) struct Bucket {
    /// B, L, S.
    size: [i64; 3],
    /// `[B * S]`, the slots of the positions. Padding repeats a slot of the same sequence.
    pub(super) slots: Tensor,
    rows: Rows,
    mask: Mask,
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

/// The rules of scores. Masks are `[B, 1, L, S]`, minus infinity where a token must not look.
#[derive(Debug)]
enum Mask {
    /// A token sees the positions up to its own. libtorch computes this mask.
    Causal,
    /// As masked.
    Masked(Tensor),
    /// Bounded, then masked.
    Capped { cap: Cap, mask: Tensor },
}

/// A bound of scores.
#[derive(Debug)]
struct Cap {
    bound: f64,
    /// `[1]`
    on_device: Tensor,
}

impl Bucket {
    /// Plans the bucket of adjacent sequences. `first_row` is the row of their first token. Scores may have a
    /// bound.
    pub(super) fn plan(
        first_row: usize,
        Members { sequences, slots, size: [tokens, positions] }: Members<'_>,
        (softcap, target): (Option<f32>, TorchTarget),
        upload: &mut Upload,
    ) -> Later<Self> {
        let size = [sequences.len() as i64, tokens as i64, positions as i64];
        let slots = upload.add(slots.iter().flat_map(|slots| padded(slots, positions)));
        let rows = Rows::plan(first_row, sequences, tokens, upload);
        let mask = Mask::plan(sequences, [tokens, positions], (softcap, target), upload);
        Box::new(move |sent| Ok(Self { size, slots: sent.get(slots)?, rows: rows(sent)?, mask: mask(sent)? }))
    }

    /// Grouped-query attention of the bucket's rows of T: `q [T, H, D], pairs [B * S, 2, K, D]`.
    pub(super) fn attend(&self, q: &Tensor, pairs: &Tensor, scores: Scores) -> Result<Attended, Error> {
        let [sequences, tokens, positions] = self.size;
        let (_, heads, size) = q.size3()?;
        let groups = pairs.size()[2];
        let q = self.rows.pick(q, sequences * tokens)?;
        let pairs = pairs.f_view([sequences, positions, 2, groups, size])?.f_permute([2, 0, 3, 1, 4])?;
        let (k, v) = (pairs.f_select(0, 0)?, pairs.f_select(0, 1)?); // [B, K, S, D]
        let attended = match &self.mask {
            Mask::Causal => self.sdpa(&q, [&k, &v], None, scores.scale)?,
            Mask::Masked(mask) => self.sdpa(&q, [&k, &v], Some(mask), scores.scale)?,
            Mask::Capped { cap, mask } => self.average(&self.capped(&q, &k, scores.scale, cap, mask)?, &v)?,
        };
        let log_sums = scores.with_log_sums.then(|| self.log_sums(&q, &k, scores.scale));
        Ok(Attended {
            rows: self.rows.keep(attended.f_reshape([sequences * tokens, heads * size])?)?,
            log_sums: log_sums.transpose()?.map(|log_sums| self.rows.keep(log_sums)).transpose()?,
        })
    }

    /// Computes attention with libtorch's own function, causally without a mask:
    /// `[B * L, H, D] -> [B, L, H, D]`, or `[B, K, G, D]` with L = 1.
    fn sdpa(&self, q: &Tensor, [k, v]: [&Tensor; 2], mask: Option<&Tensor>, scale: f64) -> Result<Tensor, Error> {
        let [sequences, tokens, _] = self.size;
        let (_, heads, size) = q.size3()?;
        let groups = k.size()[1];
        let sdpa = |q: &Tensor, grouped| {
            Tensor::f_scaled_dot_product_attention(q, k, v, mask, 0.0, mask.is_none(), Some(scale), grouped)
        };
        if tokens == 1 {
            // The G heads of a group are the query rows of one product with its keys.
            return Ok(sdpa(&q.f_view([sequences, groups, heads / groups, size])?, false)?);
        }
        let q = q.f_view([sequences, tokens, heads, size])?.f_transpose(1, 2)?;
        Ok(sdpa(&q, groups != heads)?.f_transpose(1, 2)?)
    }

    /// Computes scores with a bound, which libtorch has no attention for: `[B * L, H, D], [B, K, S, D] ->
    /// [B, H, L, S]`
    fn capped(&self, q: &Tensor, k: &Tensor, scale: f64, cap: &Cap, mask: &Tensor) -> Result<Tensor, Error> {
        let bounded = self.products(&q.f_mul_scalar(scale / cap.bound)?, k)?.f_tanh_()?;
        Ok(mask.f_addcmul(&bounded, &cap.on_device)?)
    }

    /// Multiplies queries and keys: `[B * L, H, D], [B, K, S, D] -> [B, H, L, S]`
    fn products(&self, q: &Tensor, k: &Tensor) -> Result<Tensor, Error> {
        let [sequences, tokens, positions] = self.size;
        let (_, heads, size) = q.size3()?;
        let groups = k.size()[1];
        let split = [sequences, tokens, groups, heads / groups, size];
        let q = q.f_view(split)?.f_permute([0, 2, 3, 1, 4])?; // [B, K, G, L, D]
        let products = q.f_reshape([sequences, groups, -1, size])?.f_matmul(&k.f_transpose(2, 3)?)?;
        Ok(products.f_view([sequences, heads, tokens, positions])?)
    }

    /// Averages values by scores: `[B, H, L, S], [B, K, S, D] -> [B, L, H, D]`
    fn average(&self, scores: &Tensor, v: &Tensor) -> Result<Tensor, Error> {
        let (sequences, heads, tokens, positions) = scores.size4()?;
        let (_, groups, _, size) = v.size4()?;
        let weights = scores.f_softmax(-1, v.f_kind()?)?;
        let attended = weights.f_view([sequences, groups, -1, positions])?.f_matmul(v)?;
        Ok(attended.f_view([sequences, heads, tokens, size])?.f_transpose(1, 2)?)
    }

    /// Returns the logarithms of the sums of the exponentials of scores: `[B * L, H, D], [B, K, S, D] ->
    /// [B * L, H]`
    fn log_sums(&self, q: &Tensor, k: &Tensor, scale: f64) -> Result<Tensor, Error> {
        let [sequences, tokens, positions] = self.size;
        let heads = q.size3()?.1;
        let (q, k) = (q.f_to_kind(Kind::Float)?, k.f_to_kind(Kind::Float)?);
        let scores = match &self.mask {
            Mask::Capped { cap, mask } => self.capped(&q, &k, scale, cap, mask)?,
            Mask::Masked(mask) => self.products(&q.f_mul_scalar(scale)?, &k)?.f_add(mask)?,
            Mask::Causal => {
                let later = Tensor::f_ones([tokens, positions], (Kind::Bool, q.device()))?.f_triu(1)?;
                self.products(&q.f_mul_scalar(scale)?, &k)?.f_masked_fill(&later, f64::NEG_INFINITY)?
            }
        };
        let log_sums = scores.f_to_kind(Kind::Float)?.f_logsumexp([-1], false)?; // [B, H, L]
        Ok(log_sums.f_transpose(1, 2)?.f_reshape([sequences * tokens, heads])?)
    }
}

impl Mask {
    fn plan(
        sequences: &[Visible],
        [tokens, positions]: [usize; 2],
        (softcap, target): (Option<f32>, TorchTarget),
        upload: &mut Upload,
    ) -> Later<Self> {
        match (sequences, softcap) {
            ([one], None) if tokens > 1 && one.is_causal() && !target.batch_invariant => Box::new(|_| Ok(Self::Causal)),
            _ => {
                let mask = mask(sequences, [tokens, positions], target, upload);
                Box::new(move |sent| {
                    let mask = mask(sent)?;
                    Ok(match softcap {
                        None => Self::Masked(mask),
                        Some(cap) => Self::Capped { cap: Cap::new(cap, target)?, mask },
                    })
                })
            }
        }
    }
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

/// Plans `[B, 1, L, S]`, minus infinity where a token of a sequence must not look. Tokens that are
/// padding look at the first position.
fn mask(
    sequences: &[Visible],
    [tokens, positions]: [usize; 2],
    target: TorchTarget,
    upload: &mut Upload,
) -> Later<Tensor> {
    let mut ends = |end: fn(&std::ops::Range<usize>) -> usize, padding: i64| {
        let of = |sequence: &Visible| {
            let own = sequence.of_tokens.iter().map(|seen| end(seen) as i64).collect::<Vec<_>>();
            own.into_iter().chain(std::iter::repeat(padding)).take(tokens).collect::<Vec<_>>()
        };
        upload.add(sequences.iter().flat_map(of))
    };
    let (starts, ends) = (ends(|seen| seen.start, 0), ends(|seen| seen.end, 1));
    let shape = [sequences.len() as i64, 1, tokens as i64, 1];
    Box::new(move |sent| {
        let (starts, ends) = (sent.get(starts)?.f_view(shape)?, sent.get(ends)?.f_view(shape)?);
        let columns = Tensor::f_arange(positions as i64, (Kind::Int64, target.device))?;
        let hidden = columns.f_lt_tensor(&starts)?.f_logical_or(&columns.f_ge_tensor(&ends)?)?;
        let zeros = Tensor::f_zeros(hidden.size(), (target.dtype, target.device))?;
        Ok(zeros.f_masked_fill(&hidden, f64::NEG_INFINITY)?)
    })
}

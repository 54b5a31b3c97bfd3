//! Attention of the sequences of one bucket in one call.
//!
//! Shapes: B sequences, L tokens of the longest chunk, S visible positions of the longest, K key/value
//! heads, H query heads, G = H / K query heads per key/value head, D head size.

use tch::{Kind, Tensor};

use super::layers::softcap;
use super::reach::Visible;
use crate::error::Error;
use crate::weights::TorchTarget;

/// The settings of a layer's attention.
#[derive(Debug, Clone, Copy)]
pub(super) struct View {
    /// The factor of scores.
    pub(super) scale: f64,
    /// The index of the reach.
    pub(super) reach: usize,
}

/// Sequences that are padded to the same size.
#[derive(Debug)]
pub(super) struct Bucket {
    /// B, L, S.
    size: [i64; 3],
    /// `[B * S]`, the slots of the positions. Padding repeats a slot of the same sequence.
    pub(super) slots: Tensor,
    rows: Rows,
    scores: Scores,
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
enum Scores {
    /// A token sees the positions up to its own. libtorch computes this mask.
    Causal,
    /// As masked.
    Masked(Tensor),
    /// Bounded, then masked.
    Capped { cap: f32, mask: Tensor },
}

impl Bucket {
    /// Creates the bucket of adjacent sequences. `first_row` is the row of their first token; `slots`
    /// are those of each one's visible positions.
    pub(super) fn new(
        first_row: usize,
        sequences: &[Visible],
        slots: &[Vec<i64>],
        softcap: Option<f32>,
        target: TorchTarget,
    ) -> Result<Self, Error> {
        let longest = |part: usize| sequences.iter().map(|it| it.size()[part]).max().unwrap_or_default();
        let (tokens, positions) = (longest(0), longest(1));
        let padded = slots.iter().flat_map(|slots| padded(slots, positions));
        let on_device = |numbers: Vec<i64>| Ok::<_, Error>(Tensor::f_from_slice(&numbers)?.f_to_device(target.device)?);
        Ok(Self {
            size: [sequences.len() as i64, tokens as i64, positions as i64],
            slots: on_device(padded.collect())?,
            rows: Rows::new(first_row, sequences, tokens, on_device)?,
            scores: match (sequences, softcap) {
                ([one], None) if tokens > 1 && one.is_causal() => Scores::Causal,
                (_, None) => Scores::Masked(mask(sequences, [tokens, positions], target)?),
                (_, Some(cap)) => Scores::Capped { cap, mask: mask(sequences, [tokens, positions], target)? },
            },
        })
    }

    /// Grouped-query attention: `q [T, H, D], pairs [B * S, 2, K, D] -> [rows, H * D]`, for the
    /// bucket's rows of T.
    pub(super) fn attend(&self, q: &Tensor, pairs: &Tensor, view: View) -> Result<Tensor, Error> {
        let [sequences, tokens, positions] = self.size;
        let (_, heads, size) = q.size3()?;
        let groups = pairs.size()[2];
        let q = self.rows.pick(q, sequences * tokens)?;
        let pairs = pairs.f_view([sequences, positions, 2, groups, size])?.f_permute([2, 0, 3, 1, 4])?;
        let (k, v) = (pairs.f_select(0, 0)?, pairs.f_select(0, 1)?); // [B, K, S, D]
        let attended = match &self.scores {
            Scores::Causal => self.sdpa(&q, [&k, &v], None, view.scale)?,
            Scores::Masked(mask) => self.sdpa(&q, [&k, &v], Some(mask), view.scale)?,
            Scores::Capped { cap, mask } => {
                let bounded = |scores: Tensor| Ok(softcap(scores, Some(*cap))?.f_add(mask)?);
                self.capped(&q, [&k, &v], bounded, view.scale)?
            }
        };
        self.rows.keep(attended.f_reshape([sequences * tokens, heads * size])?)
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

    /// Computes attention with bounded scores, which libtorch has no function for. `bounded` takes
    /// and returns scores, `[B, H, L, S]`: `[B * L, H, D] -> [B, L, H, D]`
    fn capped(
        &self,
        q: &Tensor,
        [k, v]: [&Tensor; 2],
        bounded: impl Fn(Tensor) -> Result<Tensor, Error>,
        scale: f64,
    ) -> Result<Tensor, Error> {
        let [sequences, tokens, positions] = self.size;
        let (_, heads, size) = q.size3()?;
        let groups = k.size()[1];
        let split = [sequences, tokens, groups, heads / groups, size];
        let q = q.f_view(split)?.f_permute([0, 2, 3, 1, 4])?; // [B, K, G, L, D]
        let q = q.f_reshape([sequences, groups, -1, size])?;
        let scores = q.f_matmul(&k.f_transpose(2, 3)?)?.f_mul_scalar(scale)?;
        let scores = bounded(scores.f_view([sequences, heads, tokens, positions])?)?;
        let weights = scores.f_softmax(-1, Kind::Float)?.f_to_kind(v.f_kind()?)?;
        let attended = weights.f_view([sequences, groups, -1, positions])?.f_matmul(v)?;
        Ok(attended.f_view([sequences, heads, tokens, size])?.f_transpose(1, 2)?)
    }
}

impl Rows {
    fn new(
        first_row: usize,
        sequences: &[Visible],
        tokens: usize,
        on_device: impl Fn(Vec<i64>) -> Result<Tensor, Error>,
    ) -> Result<Self, Error> {
        if sequences.iter().all(|sequence| sequence.of_tokens.len() == tokens) {
            return Ok(Self::Adjacent(first_row as i64));
        }
        let (mut rows, mut kept) = (Vec::new(), Vec::new());
        let mut next = first_row as i64;
        for sequence in sequences {
            let own: Vec<i64> = (next..).take(sequence.of_tokens.len()).collect();
            kept.extend((rows.len() as i64..).take(own.len()));
            rows.extend(padded(&own, tokens));
            next += own.len() as i64;
        }
        Ok(Self::Padded { rows: on_device(rows)?, kept: on_device(kept)? })
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

/// Returns `[B, 1, L, S]`, minus infinity where a token of a sequence must not look. Tokens that are
/// padding look at the first position.
fn mask(sequences: &[Visible], [tokens, positions]: [usize; 2], target: TorchTarget) -> Result<Tensor, Error> {
    let ends = |end: fn(&std::ops::Range<usize>) -> usize, padding: i64| {
        let of = |sequence: &Visible| {
            let own = sequence.of_tokens.iter().map(|seen| end(seen) as i64).collect::<Vec<_>>();
            own.into_iter().chain(std::iter::repeat(padding)).take(tokens).collect::<Vec<_>>()
        };
        let numbers: Vec<i64> = sequences.iter().flat_map(of).collect();
        let shape = [sequences.len() as i64, 1, tokens as i64, 1];
        Ok::<_, Error>(Tensor::f_from_slice(&numbers)?.f_view(shape)?.f_to_device(target.device)?)
    };
    let (starts, ends) = (ends(|seen| seen.start, 0)?, ends(|seen| seen.end, 1)?);
    let columns = Tensor::f_arange(positions as i64, (Kind::Int64, target.device))?;
    let hidden = columns.f_lt_tensor(&starts)?.f_logical_or(&columns.f_ge_tensor(&ends)?)?;
    let zeros = Tensor::f_zeros(hidden.size(), (target.dtype, target.device))?;
    Ok(zeros.f_masked_fill(&hidden, f64::NEG_INFINITY)?)
}

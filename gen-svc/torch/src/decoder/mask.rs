//! The masks of a bucket.
//!
//! Shapes: B sequences, L tokens of the longest chunk, S visible positions of the longest.

use std::ops::Range;

use tch::{Kind, Tensor};

use super::reach::Visible;
use crate::device::upload::{Later, Upload};
use crate::error::Error;
use crate::target::TorchTarget;

/// The mask of a bucket.
#[derive(Debug)]
pub(super) struct Mask {
    seen: Seen,
    /// `[B, 1, L, S]`, if it is kept.
    kept: Option<Tensor>,
}

/// The positions that each token sees.
#[derive(Debug)]
struct Seen {
    /// `[B, 1, L, 1]`
    starts: Tensor,
    /// `[B, 1, L, 1]`
    ends: Tensor,
    /// S.
    positions: i64,
    target: TorchTarget,
}

impl Mask {
    /// Plans the mask of sequences for L and S. Tokens that are padding look at the first position. If it is
    /// not `kept` for the step, it is computed when it is used.
    pub(super) fn plan(
        sequences: &[Visible],
        [tokens, positions]: [usize; 2],
        (is_kept, target): (bool, TorchTarget),
        upload: &mut Upload,
    ) -> Later<Self> {
        let mut bounds = |bound: fn(&Range<usize>) -> usize, padding: i64| {
            let of = |sequence: &Visible| {
                let own = sequence.of_tokens.iter().map(|seen| bound(seen) as i64).collect::<Vec<_>>();
                own.into_iter().chain(std::iter::repeat(padding)).take(tokens).collect::<Vec<_>>()
            };
            upload.add(sequences.iter().flat_map(of))
        };
        let (starts, ends) = (bounds(|seen| seen.start, 0), bounds(|seen| seen.end, 1));
        let shape = [sequences.len() as i64, 1, tokens as i64, 1];
        Box::new(move |sent| {
            let (starts, ends) = (sent.get(starts)?.f_view(shape)?, sent.get(ends)?.f_view(shape)?);
            let seen = Seen { starts, ends, positions: positions as i64, target };
            let kept = is_kept.then(|| seen.mask(0, shape[2])).transpose()?;
            Ok(Self { seen, kept })
        })
    }

    /// Returns the mask of some of each sequence's tokens, `[B, 1, count, S]`: minus infinity where a token
    /// must not look.
    pub(super) fn part(&self, start: i64, count: i64) -> Result<Tensor, Error> {
        match &self.kept {
            Some(mask) => Ok(mask.f_narrow(2, start, count)?),
            None => self.seen.mask(start, count),
        }
    }
}

impl Seen {
    fn mask(&self, start: i64, count: i64) -> Result<Tensor, Error> {
        let Self { starts, ends, positions, target } = self;
        let (starts, ends) = (starts.f_narrow(2, start, count)?, ends.f_narrow(2, start, count)?);
        let columns = Tensor::f_arange(*positions, (Kind::Int64, target.device))?;
        let hidden = columns.f_lt_tensor(&starts)?.f_logical_or(&columns.f_ge_tensor(&ends)?)?;
        let zeros = Tensor::f_zeros(hidden.size(), (target.dtype, target.device))?;
        Ok(zeros.f_masked_fill(&hidden, f64::NEG_INFINITY)?)
    }
}

//! The chunks of one call, in the order of computation.
//!
//! Shapes: T tokens of a call.

use std::cmp::Reverse;

use tch::Tensor;

use super::bucket::Bucket;
use super::buckets;
use super::reach::{Reach, Visible};
use crate::cache::BLOCK;
use crate::error::Error;
use crate::models::SequenceChunk;
use crate::weights::TorchTarget;

/// The positions of the chunks of one call.
#[derive(Debug)]
pub(super) struct Runs {
    /// `[T, 3]`, as numbers to compute with.
    pub(super) positions: Tensor,
    /// `[T]`, the slots that are written.
    pub(super) slots: Tensor,
    /// The buckets of each of the model's reaches. Together, they have all T tokens in order.
    pub(super) buckets: Vec<Vec<Bucket>>,
}

impl Runs {
    /// Computes the positions of [sorted](order) chunks in a model with these reaches.
    pub(super) fn new(chunks: &[SequenceChunk<'_>], reaches: &[Reach], target: TorchTarget) -> Result<Self, Error> {
        let axes = chunks.iter().flat_map(SequenceChunk::axes).flatten();
        let positions: Vec<f32> = axes.map(|position| position as f32).collect();
        let slots: Vec<i64> =
            chunks.iter().flat_map(|chunk| slots(chunk, chunk.past..chunk.past + chunk.tokens.len())).collect();
        let of_reach = |reach: &Reach| of_reach(chunks, *reach, target);
        Ok(Self {
            positions: Tensor::f_from_slice(&positions)?.f_view([-1, 3])?.f_to_device(target.device)?,
            slots: Tensor::f_from_slice(&slots)?.f_to_device(target.device)?,
            buckets: reaches.iter().map(of_reach).collect::<Result<_, _>>()?,
        })
    }
}

/// Returns the indexes of the chunks in the order of computation: first those of one token, then the
/// others, the longest sequences first.
pub(super) fn order(chunks: &[SequenceChunk<'_>]) -> Vec<usize> {
    let mut order: Vec<usize> = (0..chunks.len()).collect();
    order.sort_by_key(|&i| {
        let SequenceChunk { tokens, past, .. } = chunks[i];
        (tokens.len() > 1, Reverse(past + tokens.len()))
    });
    order
}

fn of_reach(chunks: &[SequenceChunk<'_>], reach: Reach, target: TorchTarget) -> Result<Vec<Bucket>, Error> {
    let visible: Vec<Visible> = chunks.iter().map(|chunk| Visible::new(chunk, reach)).collect();
    let sizes: Vec<[usize; 2]> = visible.iter().map(Visible::size).collect();
    let mut first_row = 0;
    let mut result = Vec::new();
    for range in buckets::of(&sizes) {
        let members = chunks[range.clone()].iter().zip(&visible[range.clone()]);
        let slots = members.map(|(chunk, visible)| slots(chunk, visible.positions.clone()).collect());
        let slots: Vec<Vec<i64>> = slots.collect();
        result.push(Bucket::new(first_row, &visible[range.clone()], &slots, reach.softcap(), target)?);
        first_row += sizes[range].iter().map(|[tokens, _]| tokens).sum::<usize>();
    }
    Ok(result)
}

/// Returns the slots of positions of a sequence.
fn slots(chunk: &SequenceChunk<'_>, positions: std::ops::Range<usize>) -> impl Iterator<Item = i64> {
    let blocks = chunk.blocks;
    positions.map(move |position| i64::from(blocks[position / BLOCK].0) * BLOCK as i64 + (position % BLOCK) as i64)
}

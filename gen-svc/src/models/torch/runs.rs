//! The chunks of one call, in the order of computation.
//!
//! Shapes: T tokens of a call.

use std::cmp::Reverse;

use tch::Tensor;

use super::attend::PagedAttention;
use super::methods::Methods;
use super::paged::slots;
use crate::device::upload::{Later, Upload};
use crate::models::SequenceChunk;

/// The positions of the chunks of one call.
#[derive(Debug)]
pub(super) struct Runs {
    /// `[T, 3]`, as numbers to compute with.
    pub(super) positions: Tensor,
    /// `[T]`, the slots that are written.
    pub(super) slots: Tensor,
    /// The attention of each of the model's methods.
    pub(super) attention: Vec<Box<dyn PagedAttention>>,
}

impl Runs {
    /// Adds the positions of [sorted](order) chunks to an upload.
    pub(super) fn plan(chunks: &[SequenceChunk<'_>], methods: &Methods, upload: &mut Upload) -> Later<Self> {
        let axes = chunks.iter().flat_map(SequenceChunk::axes).flatten();
        let positions = upload.add(axes.map(|position| position as f32));
        let block = methods.block();
        let own = chunks.iter().flat_map(|chunk| slots(chunk, chunk.past..chunk.past + chunk.tokens.len(), block));
        let slots = upload.add(own);
        let attention = methods.plan(chunks, upload);
        Box::new(move |sent| {
            Ok(Self {
                positions: sent.get(positions)?.f_view([-1, 3])?,
                slots: sent.get(slots)?,
                attention: attention.into_iter().map(|attention| attention(sent)).collect::<Result<_, _>>()?,
            })
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

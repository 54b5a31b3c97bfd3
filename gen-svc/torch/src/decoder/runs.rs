//! The chunks of one call, in the order of computation.
//!
//! Shapes: T tokens of a call.

use std::cmp::Reverse;

use tandem_core::models::SequenceChunk;
use tch::Tensor;

use super::attend::PagedAttention;
use super::methods::Methods;
use super::paged::slots;
use crate::device::upload::{Later, Upload};
use crate::error::Error;

/// The positions of the chunks of one call.
#[derive(Debug)]
pub(super) struct Runs {
    /// `[T, 3]`, as numbers to compute with, and padding.
    pub(super) positions: Tensor,
    /// `[T]`, 1 for a token of a long sequence and 0 for others, and padding. `None`: no sequence is long.
    pub(super) long: Option<Tensor>,
    /// `[T]`, the slots that are written.
    pub(super) slots: Tensor,
    /// The attention of each of the model's methods.
    pub(super) attention: Vec<Box<dyn PagedAttention>>,
    /// The rows after those of the T tokens.
    padding: usize,
}

impl Runs {
    /// Adds the positions of [sorted](order) chunks to an upload, and rows of padding.
    pub(super) fn plan(
        chunks: &[SequenceChunk<'_>],
        padding: usize,
        methods: &Methods,
        upload: &mut Upload,
    ) -> Later<Self> {
        let axes = chunks.iter().flat_map(SequenceChunk::axes).chain(std::iter::repeat_n([0; 3], padding)).flatten();
        let positions = upload.add(axes.map(|position| position as f32));
        let of_chunk = |chunk: &SequenceChunk<'_>| std::iter::repeat_n(i64::from(chunk.is_long), chunk.tokens.len());
        let long = chunks.iter().flat_map(of_chunk).chain(std::iter::repeat_n(0, padding));
        let long = chunks.iter().any(|chunk| chunk.is_long).then(|| upload.add(long));
        let block = methods.block();
        let own = chunks.iter().flat_map(|chunk| slots(chunk, chunk.past..chunk.past + chunk.tokens.len(), block));
        let slots = upload.add(own);
        let attention = methods.plan(chunks, upload);
        Box::new(move |sent| {
            Ok(Self {
                positions: sent.get(positions)?.f_view([-1, 3])?,
                long: long.map(|long| sent.get(long)).transpose()?,
                slots: sent.get(slots)?,
                attention: attention.into_iter().map(|attention| attention(sent)).collect::<Result<_, _>>()?,
                padding,
            })
        })
    }

    /// Removes the padding: `[T + padding, ..] -> [T, ..]`
    pub(super) fn without_padding(&self, x: &Tensor) -> Result<Tensor, Error> {
        if self.padding == 0 {
            return Ok(x.shallow_clone());
        }
        Ok(x.f_narrow(0, 0, x.size()[0] - self.padding as i64)?)
    }

    /// Adds the padding, zeros: `[T, n] -> [T + padding, n]`
    pub(super) fn with_padding(&self, x: Tensor) -> Result<Tensor, Error> {
        if self.padding == 0 { Ok(x) } else { Ok(x.f_constant_pad_nd([0, 0, 0, self.padding as i64])?) }
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

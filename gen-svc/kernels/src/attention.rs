//! Causal attention over keys and values in blocks, with a running softmax.
//!
//! A query meets keys 64 at a time, in the order of their positions, within ranges of 512 positions that are computed apart,
//! by several threads, and put together in order. Spans and ranges are cut at absolute positions, so a token's result does not
//! depend on which tokens are computed with it, nor on the number of threads.

mod call;
mod merge;
mod range;

pub use call::Attention;

use crate::disjoint::Disjoint;
use crate::element::{F16, F32};
use crate::error::Error;
use crate::kernels::Kernels;
use crate::kv::{KvFormat, KvStore, MIN_PARALLEL_NUMBERS};
use call::{Call, Chunk};
use merge::Merge;
use range::RangeAttention;

/// Intermediate results. Kept between calls, so that it allocates only to grow.
#[derive(Debug, Default)]
pub struct Scratch {
    partials: Vec<f32>,
}

impl Kernels {
    /// Attends with every token of the runs: `out` is \[tokens\]\[heads\]\[head_dim\].
    pub fn attend(
        &self,
        store: &KvStore,
        attention: &Attention<'_>,
        scratch: &mut Scratch,
        out: &mut [f32],
    ) -> Result<(), Error> {
        let call = Call::new(store, attention, out.len())?;
        let out_length = out.len();
        let chunks = call.chunks();
        let length = chunks.last().map_or(0, |last| last.start + call.partial_length(last) * last.ranges().len());
        if scratch.partials.len() < length {
            scratch.partials.resize(length, 0.0);
        }
        let partials = Disjoint::new(&mut scratch.partials[..length]);
        let tasks: Vec<(&Chunk, usize)> =
            chunks.iter().flat_map(|chunk| chunk.ranges().map(move |range| (chunk, range))).collect();
        self.team.run(tasks.len(), &|task| {
            let (chunk, range) = tasks[task];
            let length = call.partial_length(chunk);
            // SAFETY: every chunk and range has a part of its own.
            let partial = unsafe { partials.slice(chunk.start + (range - chunk.ranges().start) * length, length) };
            match store.shape().format {
                KvFormat::F32 => self.level.run(RangeAttention::<F32>::new(&call, chunk, range, partial)),
                KvFormat::F16 => self.level.run(RangeAttention::<F16>::new(&call, chunk, range, partial)),
            }
        });
        let (partials, out) = (&scratch.partials[..length], Disjoint::new(out));
        self.team.run_serially_if(out_length < MIN_PARALLEL_NUMBERS, chunks.len(), &|task| {
            self.level.run(Merge { call: &call, chunk: &chunks[task], partials, out: &out });
        });
        Ok(())
    }
}

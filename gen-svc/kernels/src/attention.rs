//! Causal attention over a blocked KV cache, with a running softmax.
//!
//! Keys are processed in spans of 64 positions, in the order of the positions. Positions are
//! divided into ranges of 512, which threads compute independently and which are merged in order.
//! Spans and ranges start at fixed absolute positions. A token's result therefore does not depend
//! on the other tokens of the step, nor on the number of threads.

mod call;
mod merge;
mod range;

pub use call::Attention;

use crate::clock::Part;
use crate::disjoint::Disjoint;
use crate::element::{F16, F32};
use crate::error::Error;
use crate::kernels::Kernels;
use crate::kv::{KvFormat, KvStore, MIN_PARALLEL_NUMBERS};
use call::{Call, Chunk, TransposeQueries};
use merge::Merge;
use range::RangeAttention;

/// Intermediate results, reused between calls so that only growth allocates.
#[derive(Debug, Default)]
pub struct Scratch {
    partials: Vec<f32>,
    /// The queries of each chunk, in the order in which its rows are multiplied.
    queries: Vec<f32>,
}

impl Kernels {
    /// Computes the attention of every token of the runs: `out` is \[tokens\]\[heads\]\[head_dim\].
    pub fn attend(
        &self,
        store: &KvStore,
        attention: &Attention<'_>,
        scratch: &mut Scratch,
        out: &mut [f32],
    ) -> Result<(), Error> {
        let _running = self.time(Part::Attention);
        let call = Call::new(store, attention, out.len())?;
        let out_length = out.len();
        let chunks = call.chunks();
        let length = chunks.last().map_or(0, |last| last.start + call.partial_length(last) * last.ranges().len());
        if scratch.partials.len() < length {
            scratch.partials.resize(length, 0.0);
        }
        scratch.queries.resize(out_length, 0.0);
        let queries = Disjoint::new(&mut scratch.queries);
        let is_small = out_length < MIN_PARALLEL_NUMBERS;
        self.team.run_serially_if(is_small, chunks.len(), &|task| {
            let chunk = &chunks[task];
            // SAFETY: each chunk has its own part.
            let out = unsafe { queries.slice(chunk.first_query, call.query_length(chunk)) };
            self.level.run(TransposeQueries { call: &call, chunk, out });
        });
        let (queries, partials) = (&scratch.queries, Disjoint::new(&mut scratch.partials[..length]));
        let tasks = tasks(&chunks);
        self.team.run(tasks.len(), &|task| {
            let (chunk, range) = tasks[task];
            let length = call.partial_length(chunk);
            // SAFETY: each pair of a chunk and a range has its own part.
            let partial = unsafe { partials.slice(chunk.start + (range - chunk.ranges().start) * length, length) };
            let queries = &queries[chunk.first_query..][..call.query_length(chunk)];
            match store.shape().format {
                KvFormat::F32 => self.level.run(RangeAttention::<F32>::new(&call, chunk, range, queries, partial)),
                KvFormat::F16 => self.level.run(RangeAttention::<F16>::new(&call, chunk, range, queries, partial)),
            }
        });
        let (partials, out) = (&scratch.partials[..length], Disjoint::new(out));
        self.team.run_serially_if(is_small, chunks.len(), &|task| {
            self.level.run(Merge { call: &call, chunk: &chunks[task], partials, out: &out });
        });
        Ok(())
    }
}

/// Returns the pairs of a chunk and a range. Chunks with the same keys and values follow each other,
/// so that these stay in the cache.
fn tasks(chunks: &[Chunk]) -> Vec<(&Chunk, usize)> {
    let mut tasks: Vec<(&Chunk, usize)> =
        chunks.iter().flat_map(|chunk| chunk.ranges().map(move |range| (chunk, range))).collect();
    tasks.sort_by_key(|(chunk, range)| (chunk.run, chunk.head, *range));
    tasks
}

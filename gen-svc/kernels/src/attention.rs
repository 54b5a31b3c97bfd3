//! Causal attention over a blocked KV cache, with a running softmax.
//!
//! Keys are processed in spans of 64 positions, in the order of the positions. Positions are
//! divided into ranges of 512, which threads compute independently and which are merged in order.
//! Spans and ranges start at fixed absolute positions. A token's result therefore does not depend
//! on the other tokens of the step, nor on the number of threads.

mod call;
mod format;
mod merge;
mod partial;
mod range;

pub use call::Attention;

use crate::clock::Part;
use crate::disjoint::Disjoint;
use crate::element::{Bf16, F16, F32};
use crate::error::Error;
use crate::isa::WIDE;
use crate::kernels::Kernels;
use crate::kv::{KvFormat, KvStore, MIN_PARALLEL_NUMBERS};
use call::{Call, Chunk};
use format::Single;
use merge::Merge;
use partial::{Aligned, Vector};
use range::{Attend, RangeAttention};

/// Intermediate results, reused between calls so that only growth allocates.
#[derive(Debug, Default)]
pub struct Scratch {
    partials: Vec<Vector>,
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
        match store.shape().format {
            KvFormat::F32 => self.attend_as::<Single<F32>>(&call, scratch, out),
            KvFormat::F16 => self.attend_as::<Single<F16>>(&call, scratch, out),
            KvFormat::Bf16 => self.attend_as::<Bf16>(&call, scratch, out),
        }
        Ok(())
    }

    /// Computes the attention with keys and values of one format.
    fn attend_as<F: Attend>(&self, call: &Call<'_>, scratch: &mut Scratch, out: &mut [f32]) {
        let chunks = call.chunks();
        let length = chunks.last().map_or(0, |last| last.start + call.partial(last).length() * last.ranges().len());
        if scratch.partials.len() < length {
            scratch.partials.resize(length, Aligned([0.0; WIDE]));
        }
        let partials = Disjoint::new(&mut scratch.partials[..length]);
        let tasks = tasks(&chunks);
        self.team.run(tasks.len(), &|task| {
            let (chunk, range) = tasks[task];
            let length = call.partial(chunk).length();
            // SAFETY: each pair of a chunk and a range has its own part.
            let partial = unsafe { partials.slice(chunk.start + (range - chunk.ranges().start) * length, length) };
            F::attend(self.level, RangeAttention::new(call, chunk, range, partial));
        });
        let is_small = out.len() < MIN_PARALLEL_NUMBERS;
        let (partials, out) = (&scratch.partials[..length], Disjoint::new(out));
        self.team.run_serially_if(is_small, chunks.len(), &|task| {
            self.level.run(Merge { call, chunk: &chunks[task], partials, out: &out });
        });
    }
}

/// Returns the pairs of a chunk and a range. The ranges of a chunk follow each other, so that its
/// queries stay in the cache, as do chunks with the same keys and values.
fn tasks(chunks: &[Chunk]) -> Vec<(&Chunk, usize)> {
    let mut tasks: Vec<(&Chunk, usize)> =
        chunks.iter().flat_map(|chunk| chunk.ranges().map(move |range| (chunk, range))).collect();
    tasks.sort_by_key(|(chunk, _)| (chunk.run, chunk.head));
    tasks
}

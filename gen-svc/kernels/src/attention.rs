//! Causal attention over keys and values in blocks, with a running softmax.
//!
//! A query meets keys 64 at a time, in the order of their positions, within ranges of 512 positions that are computed apart,
//! by several threads, and put together in order. Spans and ranges are cut at absolute positions, so a token's result does not
//! depend on which tokens are computed with it, nor on the number of threads.

mod merge;
mod walk;

use std::ops::Range;

use crate::Kernels;
use crate::disjoint::Disjoint;
use crate::element::{F16, F32};
use crate::error::{Error, expect, expect_multiple};
use crate::kv::{KvFormat, KvStore, LITTLE, Run};
use merge::Merge;
use walk::Walk;

/// Positions of a range.
const RANGE: usize = 512;
/// Query rows of a task, about: they are read again for every block of keys, so they should stay in the nearest cache.
const ROWS: usize = 48;

/// One layer's attention.
#[derive(Debug, Clone, Copy)]
pub struct Attention<'a> {
    pub layer: usize,
    /// Query heads: a multiple of the store's heads, each of which serves as many consecutive ones.
    pub heads: usize,
    /// What products of queries and keys are multiplied by.
    pub scale: f32,
    /// `cap` * tanh(score / `cap`).
    pub soft_cap: Option<f32>,
    /// A token sees itself and this many positions less one before it.
    pub window: Option<usize>,
    /// The tokens, one run after the other; their keys and values are already written.
    pub runs: &'a [Run<'a>],
    /// \[tokens\]\[heads\]\[head_dim\].
    pub queries: &'a [f32],
}

/// Intermediate results. Kept between calls, so that it allocates only to grow.
#[derive(Debug, Default)]
pub struct Scratch {
    partials: Vec<f32>,
}

/// Tokens of a run with the query heads of one key head: what a task computes, for one range of positions.
#[derive(Debug, Clone)]
struct Chunk {
    run: usize,
    head: usize,
    /// Within the run.
    tokens: Range<usize>,
    /// The run's first token among all.
    first: usize,
    /// Positions that any of the tokens sees.
    positions: Range<usize>,
    /// Where the chunk's partial results start.
    start: usize,
}

impl Chunk {
    fn ranges(&self) -> Range<usize> {
        self.positions.start / RANGE..self.positions.end.div_ceil(RANGE)
    }
}

/// A call, once its shapes are known to be right.
struct Call<'a> {
    attention: &'a Attention<'a>,
    store: &'a KvStore,
    /// Query heads per key head.
    group: usize,
    head_dim: usize,
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
        let walks: Vec<(&Chunk, usize)> =
            chunks.iter().flat_map(|chunk| chunk.ranges().map(move |range| (chunk, range))).collect();
        self.team.run(walks.len(), &|task| {
            let (chunk, range) = walks[task];
            let length = call.partial_length(chunk);
            // SAFETY: every chunk and range has a part of its own.
            let partial = unsafe { partials.slice(chunk.start + (range - chunk.ranges().start) * length, length) };
            match store.shape().format {
                KvFormat::F32 => self.level.run(Walk::<F32>::new(&call, chunk, range, partial)),
                KvFormat::F16 => self.level.run(Walk::<F16>::new(&call, chunk, range, partial)),
            }
        });
        let (partials, out) = (&scratch.partials[..length], Disjoint::new(out));
        self.team.run_unless(out_length < LITTLE, chunks.len(), &|task| {
            self.level.run(Merge { call: &call, chunk: &chunks[task], partials, out: &out });
        });
        Ok(())
    }
}

impl<'a> Call<'a> {
    fn new(store: &'a KvStore, attention: &'a Attention<'a>, out: usize) -> Result<Self, Error> {
        let shape = store.shape();
        expect_multiple("query heads", shape.heads, attention.heads)?;
        let columns = attention.heads.saturating_mul(shape.head_dim);
        expect_multiple("queries", columns, attention.queries.len())?;
        expect("output", attention.queries.len(), out)?;
        expect_multiple("window", 1, attention.window.unwrap_or(1))?;
        store.check(attention.layer, attention.runs, out / columns)?;
        Ok(Self { attention, store, group: attention.heads / shape.heads, head_dim: shape.head_dim })
    }

    /// All work, run by run.
    fn chunks(&self) -> Vec<Chunk> {
        let step = (ROWS / self.group).max(1);
        let (mut chunks, mut first, mut start) = (Vec::new(), 0, 0);
        for (index, run) in self.attention.runs.iter().enumerate() {
            for token in (0..run.length).step_by(step) {
                let tokens = token..(token + step).min(run.length);
                let positions = self.first_seen(run.past + token)..run.past + tokens.end;
                for head in 0..self.store.shape().heads {
                    let (tokens, positions) = (tokens.clone(), positions.clone());
                    let chunk = Chunk { run: index, head, tokens, first, positions, start };
                    start += self.partial_length(&chunk) * chunk.ranges().len();
                    chunks.push(chunk);
                }
            }
            first += run.length;
        }
        chunks
    }

    /// The first position that a token sees.
    #[inline(always)]
    fn first_seen(&self, position: usize) -> usize {
        self.attention.window.map_or(0, |window| (position + 1).saturating_sub(window))
    }

    /// The positions that a token sees.
    #[inline(always)]
    fn seen(&self, position: usize) -> Range<usize> {
        self.first_seen(position)..position + 1
    }

    /// Numbers of a query row's partial result: the weighted values, the greatest score, the sum of the weights.
    #[inline(always)]
    fn row_length(&self) -> usize {
        self.head_dim + 2
    }

    /// Numbers of a chunk's partial result: \[tokens\]\[group\]\[row\].
    fn partial_length(&self, chunk: &Chunk) -> usize {
        chunk.tokens.len() * self.group * self.row_length()
    }

    /// Where a row's query, or its output, starts.
    #[inline(always)]
    fn query_start(&self, chunk: &Chunk, row: usize) -> usize {
        let token = chunk.first + chunk.tokens.start + row / self.group;
        (token * self.attention.heads + chunk.head * self.group + row % self.group) * self.head_dim
    }
}

//! The parameters of one attention call, and how the call is divided into tasks.

use std::ops::Range;

use super::partial::PartialShape;
use crate::error::{Error, expect, expect_below, expect_multiple};
use crate::isa::WIDE;
use crate::kv::{KvRun, KvStore, POSITIONS};

/// Positions of a range.
pub(super) const RANGE_POSITIONS: usize = 512;
/// Blocks of a span. The softmax weights of a span are computed together.
pub(super) const SPAN_BLOCKS: usize = 4;
/// Factors of a row that are next to each other. The same offset to the next row's factors, for all head
/// dimensions, is part of the instructions.
pub(super) const FACTORS: usize = SPAN_POSITIONS;
/// Positions of a span.
pub(super) const SPAN_POSITIONS: usize = SPAN_BLOCKS * POSITIONS;
/// Approximate query rows of a task. Every block of keys reads them again, so they should fit the
/// L1 cache.
const ROWS_PER_TASK: usize = 96;

/// The attention of one layer.
#[derive(Debug, Clone, Copy)]
pub struct Attention<'a> {
    pub layer: usize,
    /// Query heads: a multiple of the store's heads. Consecutive query heads share a key head.
    pub heads: usize,
    /// The factor of the query-key products.
    pub scale: f32,
    /// Caps each score: `cap` * tanh(score / `cap`).
    pub soft_cap: Option<f32>,
    /// Positions that a token attends to, itself included. `None`: all positions up to the token.
    pub window: Option<usize>,
    /// \[tokens\]. The end of the positions that each token attends to, beyond the token and within
    /// its run. It never decreases within a run. `None`: each token's own position is the last.
    pub ends: Option<&'a [usize]>,
    /// The runs of tokens, in the order of `queries`. Their keys and values are already in the
    /// store.
    pub runs: &'a [KvRun<'a>],
    /// \[tokens\]\[heads\]\[head_dim\].
    pub queries: &'a [f32],
}

/// Tokens of one run, with the query heads of one key head. A task computes one range of positions
/// of a chunk.
#[derive(Debug, Clone)]
pub(super) struct Chunk {
    pub(super) run: usize,
    pub(super) head: usize,
    /// Token indices within the run.
    pub(super) tokens: Range<usize>,
    /// Index of the run's first token among the tokens of all runs.
    pub(super) first: usize,
    /// Positions that at least one of the tokens attends to.
    pub(super) positions: Range<usize>,
    /// Offset of the chunk's partial results, in vectors.
    pub(super) start: usize,
}

impl Chunk {
    pub(super) fn ranges(&self) -> Range<usize> {
        self.positions.start / RANGE_POSITIONS..self.positions.end.div_ceil(RANGE_POSITIONS)
    }
}

/// A call whose shapes have been checked.
pub(super) struct Call<'a> {
    pub(super) attention: &'a Attention<'a>,
    pub(super) store: &'a KvStore,
    /// Query heads per key head.
    pub(super) group: usize,
    pub(super) head_dim: usize,
}

impl<'a> Call<'a> {
    pub(super) fn new(store: &'a KvStore, attention: &'a Attention<'a>, out: usize) -> Result<Self, Error> {
        let shape = store.shape();
        expect_multiple("query heads", shape.heads, attention.heads)?;
        let columns = attention.heads.saturating_mul(shape.head_dim);
        expect_multiple("queries", columns, attention.queries.len())?;
        expect("output", attention.queries.len(), out)?;
        expect_multiple("window", 1, attention.window.unwrap_or(1))?;
        store.check(attention.layer, attention.runs, out / columns)?;
        attention.ends.map_or(Ok(()), |ends| check_ends(ends, attention.runs))?;
        Ok(Self { attention, store, group: attention.heads / shape.heads, head_dim: shape.head_dim })
    }

    /// Returns the chunks of all runs, in the order of the runs.
    pub(super) fn chunks(&self) -> Vec<Chunk> {
        let step = (ROWS_PER_TASK / self.group).max(1);
        let (mut chunks, mut first, mut start) = (Vec::new(), 0, 0);
        for (index, run) in self.attention.runs.iter().enumerate() {
            for token in (0..run.length).step_by(step) {
                let tokens = token..(token + step).min(run.length);
                let positions = self.first_visible(run.past + token)..self.end(first, run.past, tokens.end - 1);
                for head in 0..self.store.shape().heads {
                    let (tokens, positions) = (tokens.clone(), positions.clone());
                    let chunk = Chunk { run: index, head, tokens, first, positions, start };
                    start += self.partial(&chunk).length() * chunk.ranges().len();
                    chunks.push(chunk);
                }
            }
            first += run.length;
        }
        chunks
    }

    /// Returns the first position that a token attends to.
    #[inline(always)]
    fn first_visible(&self, position: usize) -> usize {
        self.attention.window.map_or(0, |window| (position + 1).saturating_sub(window))
    }

    /// Returns the end of the positions that a token attends to. `first` is the index of the run's
    /// first token among the tokens of all runs, `token` an index within the run.
    #[inline(always)]
    fn end(&self, first: usize, past: usize, token: usize) -> usize {
        self.attention.ends.map_or(past + token + 1, |ends| ends[first + token])
    }

    /// Returns the positions that a token attends to. `token` is an index within the chunk's run.
    #[inline(always)]
    pub(super) fn visible(&self, chunk: &Chunk, past: usize, token: usize) -> Range<usize> {
        self.first_visible(past + token)..self.end(chunk.first, past, token)
    }

    /// Returns the sizes of a chunk's partial results.
    #[inline(always)]
    pub(super) fn partial(&self, chunk: &Chunk) -> PartialShape {
        PartialShape { rows: chunk.tokens.len() * self.group, vectors: self.head_dim.div_ceil(WIDE) }
    }

    /// Returns the offset of a row's query, which is also the offset of its output.
    #[inline(always)]
    pub(super) fn query_start(&self, chunk: &Chunk, row: usize) -> usize {
        let token = chunk.first + chunk.tokens.start + row / self.group;
        (token * self.attention.heads + chunk.head * self.group + row % self.group) * self.head_dim
    }
}

/// Fails unless the ends of each run never decrease, and are beyond their tokens and within the run.
fn check_ends(ends: &[usize], runs: &[KvRun<'_>]) -> Result<(), Error> {
    expect("ends", runs.iter().map(|run| run.length).sum(), ends.len())?;
    let mut rest = ends;
    for run in runs {
        let (ends, after) = rest.split_at(run.length);
        let mut least = run.past;
        for (token, end) in ends.iter().enumerate() {
            least = least.max(run.past + token + 1);
            expect_below("position before the end of a token", *end, least - 1)?;
            expect_below("end", run.past + run.length + 1, *end)?;
            least = *end;
        }
        rest = after;
    }
    Ok(())
}

//! One call: what it attends with, and the tasks that it is cut into.

use std::ops::Range;

use crate::error::{Error, expect, expect_multiple};
use crate::kv::{KvStore, Run};

/// Positions of a range.
pub(super) const RANGE_POSITIONS: usize = 512;
/// Query rows of a task, about: they are read again for every block of keys, so they should stay in the nearest cache.
const ROWS_PER_TASK: usize = 48;

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

/// Tokens of a run with the query heads of one key head: what a task computes, for one range of positions.
#[derive(Debug, Clone)]
pub(super) struct Chunk {
    pub(super) run: usize,
    pub(super) head: usize,
    /// Within the run.
    pub(super) tokens: Range<usize>,
    /// The run's first token among all.
    pub(super) first: usize,
    /// Positions that any of the tokens sees.
    pub(super) positions: Range<usize>,
    /// Where the chunk's partial results start.
    pub(super) start: usize,
}

impl Chunk {
    pub(super) fn ranges(&self) -> Range<usize> {
        self.positions.start / RANGE_POSITIONS..self.positions.end.div_ceil(RANGE_POSITIONS)
    }
}

/// A call, once its shapes are known to be right.
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
        Ok(Self { attention, store, group: attention.heads / shape.heads, head_dim: shape.head_dim })
    }

    /// All work, run by run.
    pub(super) fn chunks(&self) -> Vec<Chunk> {
        let step = (ROWS_PER_TASK / self.group).max(1);
        let (mut chunks, mut first, mut start) = (Vec::new(), 0, 0);
        for (index, run) in self.attention.runs.iter().enumerate() {
            for token in (0..run.length).step_by(step) {
                let tokens = token..(token + step).min(run.length);
                let positions = self.first_visible(run.past + token)..run.past + tokens.end;
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
    fn first_visible(&self, position: usize) -> usize {
        self.attention.window.map_or(0, |window| (position + 1).saturating_sub(window))
    }

    /// The positions that a token sees.
    #[inline(always)]
    pub(super) fn visible(&self, position: usize) -> Range<usize> {
        self.first_visible(position)..position + 1
    }

    /// Numbers of a query row's partial result: the weighted values, the greatest score, the sum of the weights.
    #[inline(always)]
    pub(super) fn row_length(&self) -> usize {
        self.head_dim + 2
    }

    /// Numbers of a chunk's partial result: \[tokens\]\[group\]\[row\].
    pub(super) fn partial_length(&self, chunk: &Chunk) -> usize {
        chunk.tokens.len() * self.group * self.row_length()
    }

    /// Where a row's query, or its output, starts.
    #[inline(always)]
    pub(super) fn query_start(&self, chunk: &Chunk, row: usize) -> usize {
        let token = chunk.first + chunk.tokens.start + row / self.group;
        (token * self.attention.heads + chunk.head * self.group + row % self.group) * self.head_dim
    }
}

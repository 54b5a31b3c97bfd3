//! The attention of the query rows of a chunk over one range of positions.

use std::marker::PhantomData;
use std::ops::Range;

use super::call::{Call, Chunk, FACTORS, RANGE_POSITIONS, SPAN_BLOCKS, SPAN_POSITIONS};
use super::format::{Format, Multiply, PairsOfBf16, Single, Singles};
use super::partial::{Aligned, Partial, PartialShape, Vector};
use crate::element::{Bf16, Element};
use crate::isa::{Isa, IsaLevel, Kernel, PairKernel, Pairs, WIDE};
use crate::kv::{POSITIONS, Part};

mod scores;
mod softmax;
mod values;

/// Rows of a group: one vector contains a number of each. A group's scores, weights and values are
/// computed one after the other, so that the scores and weights stay in the cache.
const GROUP_ROWS: usize = WIDE;

/// The scores of one row in a span: \[blocks\]\[positions\].
type Scores = Aligned<[[f32; POSITIONS]; SPAN_BLOCKS]>;
/// Factors of one row: the softmax weights of a span, or a part of its query.
type Factors<F> = Aligned<[<F as Format>::Factor; FACTORS]>;

/// The attention of one chunk over one range. A row is one head of one token.
pub(super) struct RangeAttention<'a, F: Format> {
    call: &'a Call<'a>,
    chunk: &'a Chunk,
    range: usize,
    shape: PartialShape,
    /// The positions that each row attends to.
    visible: Vec<Range<usize>>,
    /// The last block that contains visible positions.
    last_block: usize,
    partial: Partial<&'a mut [Vector], &'a mut [Vector]>,
    format: PhantomData<F>,
}

/// The rows of a group that attend to positions of a span.
struct Group {
    rows: Range<usize>,
    span: usize,
}

impl<'a, F: Format> RangeAttention<'a, F> {
    /// `partial` becomes the partial result of the chunk in the range.
    pub(super) fn new(call: &'a Call<'a>, chunk: &'a Chunk, range: usize, partial: &'a mut [Vector]) -> Self {
        let past = call.attention.runs[chunk.run].past;
        let shape = call.partial(chunk);
        let visible = chunk.tokens.clone().map(|token| call.visible(chunk, past, token));
        let visible = visible.flat_map(|visible| std::iter::repeat_n(visible, call.group)).collect();
        let last_block = (chunk.positions.end - 1) / POSITIONS;
        Self { call, chunk, range, shape, visible, last_block, format: PhantomData, partial: shape.clear(partial) }
    }
}

/// A format whose attention can be computed.
pub(super) trait Attend: Format {
    /// Computes the attention with the operations of a level.
    fn attend(level: IsaLevel, attention: RangeAttention<'_, Self>);
}

impl<E: Element> Attend for Single<E> {
    fn attend(level: IsaLevel, attention: RangeAttention<'_, Self>) {
        level.run(attention);
    }
}

impl Attend for Bf16 {
    fn attend(level: IsaLevel, attention: RangeAttention<'_, Self>) {
        level.run_pairs(attention);
    }
}

impl<E: Element> Kernel for RangeAttention<'_, Single<E>> {
    type Output = ();

    #[inline(always)]
    fn run<I: Isa>(self, isa: I) {
        self.compute(Singles::new(isa));
    }
}

impl PairKernel for RangeAttention<'_, Bf16> {
    #[inline(always)]
    fn run<P: Pairs>(self, pairs: P) {
        self.compute(PairsOfBf16(pairs));
    }
}

impl<'a, F: Format> RangeAttention<'a, F> {
    #[inline(always)]
    fn compute<M: Multiply<Format = F>>(mut self, multiply: M) {
        let mut scores = [Aligned([[0.0; POSITIONS]; SPAN_BLOCKS]); GROUP_ROWS];
        let mut weights = [Aligned([F::Factor::default(); FACTORS]); GROUP_ROWS];
        let queries = self.queries(multiply);
        for span in self.spans() {
            let rows = self.visible_rows(span);
            for index in rows.start / GROUP_ROWS..rows.end.div_ceil(GROUP_ROWS) {
                let first = index * GROUP_ROWS;
                let group = Group { rows: rows.start.max(first)..rows.end.min(first + GROUP_ROWS), span };
                self.score(multiply, &group, &queries, &mut scores);
                let factors = self.weigh(multiply, &group, &scores, &mut weights);
                self.scale(multiply, &group, &factors);
                self.add_values(multiply, &group, &weights);
            }
        }
    }

    /// Returns the queries: \[head_dim / depth / 64, rounded up\]\[rows\].
    #[inline(always)]
    fn queries<M: Multiply<Format = F>>(&self, multiply: M) -> Vec<Factors<F>> {
        let (call, rows, numbers) = (self.call, self.shape.rows, FACTORS * F::DEPTH);
        let mut queries = Vec::with_capacity(call.head_dim.div_ceil(numbers) * rows);
        for first in (0..call.head_dim).step_by(numbers) {
            for row in 0..rows {
                let query = &call.attention.queries[call.query_start(self.chunk, row)..][..call.head_dim];
                queries.push(Aligned(multiply.convert(&query[first..call.head_dim.min(first + numbers)])));
            }
        }
        queries
    }

    /// Returns the spans of the range that contain visible positions.
    #[inline(always)]
    fn spans(&self) -> Range<usize> {
        let (positions, range) = (&self.chunk.positions, self.range);
        let positions = positions.start.max(range * RANGE_POSITIONS)..positions.end.min((range + 1) * RANGE_POSITIONS);
        positions.start / SPAN_POSITIONS..positions.end.div_ceil(SPAN_POSITIONS)
    }

    /// Returns the positions of a span that a row attends to.
    #[inline(always)]
    fn visible(&self, row: usize, span: usize) -> Range<usize> {
        let visible = &self.visible[row];
        visible.start.max(span * SPAN_POSITIONS)..visible.end.min((span + 1) * SPAN_POSITIONS)
    }

    /// Returns the rows that attend to positions of a span: at least one. They are consecutive, since neither the
    /// start nor the end of the visible positions decreases from row to row.
    #[inline(always)]
    fn visible_rows(&self, span: usize) -> Range<usize> {
        let mut rows = 0..self.shape.rows;
        while !rows.is_empty() && self.visible(rows.start, span).is_empty() {
            rows.start += 1;
        }
        while !rows.is_empty() && self.visible(rows.end - 1, span).is_empty() {
            rows.end -= 1;
        }
        rows
    }

    /// Returns true if every row of a group attends to every position of the span.
    #[inline(always)]
    fn sees_whole_span(&self, group: &Group) -> bool {
        let (first, last) = (&self.visible[group.rows.start], &self.visible[group.rows.end - 1]);
        last.start <= group.span * SPAN_POSITIONS && first.end >= (group.span + 1) * SPAN_POSITIONS
    }

    /// Returns the blocks that contain positions to which rows of a group attend.
    #[inline(always)]
    fn visible_blocks(&self, group: &Group) -> Range<usize> {
        let start = self.visible(group.rows.start, group.span).start;
        let end = self.visible(group.rows.end - 1, group.span).end;
        start / POSITIONS..end.div_ceil(POSITIONS)
    }

    #[inline(always)]
    fn tile(&self, part: Part, block: usize) -> &'a [F::Lane] {
        let call = self.call;
        let number = call.attention.runs[self.chunk.run].blocks[block];
        call.store.tile(call.attention.layer, number, part, self.chunk.head)
    }
}

//! The attention of query rows over one range of positions.

use std::array::from_fn;
use std::marker::PhantomData;
use std::ops::Range;

use super::call::{Call, Chunk, RANGE_POSITIONS};
use crate::act::{exp, soft_cap};
use crate::element::Element;
use crate::isa::{Isa, Kernel, LANES, WIDE};
use crate::kv::{POSITIONS, Part};

/// Blocks of a span. The softmax weights of a span are computed together.
const SPAN_BLOCKS: usize = 4;
/// Positions of a span.
const SPAN_POSITIONS: usize = SPAN_BLOCKS * POSITIONS;

/// The attention of one chunk over one range.
///
/// Each row of `partial` becomes: the sum of the values weighted by exp(score - largest), the
/// largest score, the sum of the weights.
pub(super) struct RangeAttention<'a, E> {
    call: &'a Call<'a>,
    chunk: &'a Chunk,
    spans: Range<usize>,
    /// \[head_dim\]\[rows\]: a row is one head of one token.
    queries: Vec<f32>,
    rows: usize,
    /// Positions before the run.
    past: usize,
    partial: &'a mut [f32],
    element: PhantomData<E>,
}

/// The positions of a span that a row attends to: at least one.
#[derive(Clone, PartialEq)]
struct Visible(Range<usize>);

impl Visible {
    #[inline(always)]
    fn blocks(&self) -> Range<usize> {
        self.0.start / POSITIONS..self.0.end.div_ceil(POSITIONS)
    }

    /// Returns the visible positions within one block.
    #[inline(always)]
    fn of(&self, block: usize) -> Range<usize> {
        let within = |position: usize| position.saturating_sub(block * POSITIONS).min(POSITIONS);
        within(self.0.start)..within(self.0.end)
    }
}

impl<'a, E: Element> RangeAttention<'a, E> {
    pub(super) fn new(call: &'a Call<'a>, chunk: &'a Chunk, range: usize, partial: &'a mut [f32]) -> Self {
        let positions =
            chunk.positions.start.max(range * RANGE_POSITIONS)..chunk.positions.end.min((range + 1) * RANGE_POSITIONS);
        let spans = positions.start / SPAN_POSITIONS..positions.end.div_ceil(SPAN_POSITIONS);
        let past = call.attention.runs[chunk.run].past;
        let rows = chunk.tokens.len() * call.group;
        let mut queries = vec![0.0; call.head_dim * rows];
        for row in 0..rows {
            let query = &call.attention.queries[call.query_start(chunk, row)..][..call.head_dim];
            for (element, value) in query.iter().enumerate() {
                queries[element * rows + row] = *value;
            }
        }
        Self { call, chunk, spans, queries, rows, past, partial, element: PhantomData }
    }
}

impl<E: Element> Kernel for RangeAttention<'_, E> {
    type Output = ();

    #[inline(always)]
    fn run<I: Isa>(mut self, isa: I) {
        for row in self.partial.chunks_exact_mut(self.call.row_length()) {
            row.fill(0.0);
            row[self.call.head_dim] = f32::NEG_INFINITY;
        }
        for span in self.spans.clone() {
            let mut row = 0;
            while row < self.rows {
                row += self.add_rows(isa, row, span);
            }
        }
    }
}

impl<'a, E: Element> RangeAttention<'a, E> {
    /// Adds a span to `row` and the rows after it that can be computed together with it. Returns
    /// the number of rows.
    #[inline(always)]
    fn add_rows<I: Isa>(&mut self, isa: I, row: usize, span: usize) -> usize {
        let Some(visible) = self.visible(row, span) else { return 1 };
        // Rows are in the order of positions: if the last row attends to the same positions, all
        // rows between do too.
        let same =
            |rows: usize| row + rows <= self.rows && self.visible(row + rows - 1, span).as_ref() == Some(&visible);
        if I::REGISTERS > 16 && same(16) {
            self.add_span::<I, 16>(isa, row, visible)
        } else if I::REGISTERS > 16 && same(8) {
            self.add_span::<I, 8>(isa, row, visible)
        } else if same(4) {
            self.add_span::<I, 4>(isa, row, visible)
        } else if same(3) {
            self.add_span::<I, 3>(isa, row, visible)
        } else if same(2) {
            self.add_span::<I, 2>(isa, row, visible)
        } else {
            self.add_span::<I, 1>(isa, row, visible)
        }
    }

    #[inline(always)]
    fn visible(&self, row: usize, span: usize) -> Option<Visible> {
        let visible = self.call.visible(self.chunk, self.past, self.chunk.tokens.start + row / self.call.group);
        let visible = visible.start.max(span * SPAN_POSITIONS)..visible.end.min((span + 1) * SPAN_POSITIONS);
        (!visible.is_empty()).then_some(Visible(visible))
    }

    /// Adds a span to `R` rows, which attend to the same positions of it. Returns `R`.
    #[inline(always)]
    fn add_span<I: Isa, const R: usize>(&mut self, isa: I, row: usize, visible: Visible) -> usize {
        let mut weights = [[[0.0; POSITIONS]; SPAN_BLOCKS]; R];
        let greatest = self.scores::<I, R>(isa, row, &visible, &mut weights);
        let mut values: [&[E::Stored]; SPAN_BLOCKS] = [&[]; SPAN_BLOCKS];
        for block in visible.blocks() {
            values[block % SPAN_BLOCKS] = self.tile(Part::Values, block);
        }
        let length = self.call.row_length();
        let mut states = self.partial[row * length..].chunks_exact_mut(length);
        let states: [&mut [f32]; R] = from_fn(|_| states.next().unwrap_or_default());
        let (first, blocks) = (visible.blocks().start % SPAN_BLOCKS, visible.blocks().len());
        for r in 0..R {
            apply_softmax(isa, self.call.head_dim, greatest[r], &mut weights[r][first..][..blocks], states[r]);
        }
        WeightedValues::<E, R> { values, weights: &weights, visible, dim: self.call.head_dim }.add(isa, states);
        R
    }

    /// Computes the scores of `R` rows, scaled and capped; a masked position has the score negative
    /// infinity.
    ///
    /// Returns the largest score of each lane.
    #[inline(always)]
    fn scores<I: Isa, const R: usize>(
        &self,
        isa: I,
        row: usize,
        visible: &Visible,
        scores: &mut [[[f32; POSITIONS]; SPAN_BLOCKS]; R],
    ) -> [I::W; R] {
        let scale = isa.splat(self.call.attention.scale);
        let mut greatest = [isa.splat(f32::NEG_INFINITY); R];
        for block in visible.blocks() {
            let products = self.products::<I, R>(isa, row, self.tile(Part::Keys, block));
            let visible = visible.of(block);
            for r in 0..R {
                let mut score = isa.mul(products[r], scale);
                if let Some(limit) = self.call.attention.soft_cap {
                    score = soft_cap(isa, score, limit);
                }
                let scores = &mut scores[r][block % SPAN_BLOCKS];
                isa.wide_store(score, scores);
                if visible.len() < POSITIONS {
                    scores[..visible.start].fill(f32::NEG_INFINITY);
                    scores[visible.end..].fill(f32::NEG_INFINITY);
                    score = isa.wide_load(scores);
                }
                greatest[r] = isa.max(score, greatest[r]);
            }
        }
        greatest
    }

    /// Returns the products of 16 keys, \[head_dim\]\[16\], with the queries of `R` rows.
    #[inline(always)]
    fn products<I: Isa, const R: usize>(&self, isa: I, row: usize, keys: &[E::Stored]) -> [I::W; R] {
        let mut sums = [isa.splat(0.0); R];
        for (keys, queries) in keys.as_chunks::<POSITIONS>().0.iter().zip(self.queries.chunks_exact(self.rows)) {
            let keys = E::wide_load(isa, keys);
            let queries: &[f32; R] = &queries[row..].as_chunks().0[0];
            for r in 0..R {
                sums[r] = isa.fma(keys, isa.splat(queries[r]), sums[r]);
            }
        }
        sums
    }

    #[inline(always)]
    fn tile(&self, part: Part, block: usize) -> &'a [E::Stored] {
        let call = self.call;
        let number = call.attention.runs[self.chunk.run].blocks[block];
        call.store.tile::<E::Stored>(call.attention.layer, number, part, self.chunk.head)
    }
}

/// Replaces scores by softmax weights, and rescales the row's state if the largest score has grown.
#[inline(always)]
fn apply_softmax<I: Isa>(isa: I, dim: usize, greatest: I::W, scores: &mut [[f32; POSITIONS]], state: &mut [f32]) {
    let (values, rest) = state.split_at_mut(dim);
    if isa.any_greater(greatest, isa.splat(rest[0])) {
        let [first, second] = isa.split(greatest);
        let greatest = isa.greatest(isa.max(first, second));
        let mut factor = [rest[0] - greatest; LANES];
        isa.store(exp(isa, isa.load(&factor)), &mut factor);
        rest[1] *= factor[0];
        for lanes in values.as_chunks_mut::<LANES>().0 {
            isa.store(isa.mul(isa.load(lanes), isa.splat(factor[0])), lanes);
        }
        rest[0] = greatest;
    }
    let (greatest, mut sum) = (isa.splat(rest[0]), isa.splat(0.0));
    for lanes in scores {
        let weights = exp(isa, isa.sub(isa.wide_load(lanes), greatest));
        isa.wide_store(weights, lanes);
        sum = isa.add(sum, weights);
    }
    let [first, second] = isa.split(sum);
    rest[1] += isa.sum(isa.add(first, second));
}

/// The values of a span, and their weights in `R` rows.
struct WeightedValues<'a, E: Element, const R: usize> {
    /// Values of each visible block: \[16\]\[head_dim\].
    values: [&'a [E::Stored]; SPAN_BLOCKS],
    weights: &'a [[[f32; POSITIONS]; SPAN_BLOCKS]; R],
    visible: Visible,
    /// Head dimension.
    dim: usize,
}

impl<E: Element, const R: usize> WeightedValues<'_, E, R> {
    /// Adds the weighted values to the rows' states, in the order of the positions.
    ///
    /// Values at masked positions are skipped, since zero times infinity would be NaN.
    #[inline(always)]
    fn add<I: Isa>(&self, isa: I, mut states: [&mut [f32]; R]) {
        let mut column = 0;
        while I::REGISTERS > 16 && R <= 8 && column + 2 * WIDE <= self.dim {
            self.add_columns::<I, 2>(isa, column, &mut states);
            column += 2 * WIDE;
        }
        while column + WIDE <= self.dim {
            self.add_columns::<I, 1>(isa, column, &mut states);
            column += WIDE;
        }
        if column < self.dim {
            self.add_last_eight(isa, column, &mut states);
        }
    }

    /// Adds `C` times sixteen columns, starting at `column`.
    #[inline(always)]
    fn add_columns<I: Isa, const C: usize>(&self, isa: I, column: usize, states: &mut [&mut [f32]; R]) {
        let mut sums = [[isa.splat(0.0); C]; R];
        for r in 0..R {
            let state = states[r][column..].as_chunks::<WIDE>().0;
            for c in 0..C {
                sums[r][c] = isa.wide_load(&state[c]);
            }
        }
        for block in self.visible.blocks() {
            let weights: [&[f32; POSITIONS]; R] = from_fn(|r| &self.weights[r][block % SPAN_BLOCKS]);
            for position in self.visible.of(block) {
                let lanes = &self.values[block % SPAN_BLOCKS][position * self.dim + column..][..C * WIDE];
                for c in 0..C {
                    let value = E::wide_load(isa, &lanes.as_chunks().0[c]);
                    for (sums, weights) in sums.iter_mut().zip(weights) {
                        sums[c] = isa.fma(isa.splat(weights[position]), value, sums[c]);
                    }
                }
            }
        }
        for r in 0..R {
            let state = states[r][column..].as_chunks_mut::<WIDE>().0;
            for c in 0..C {
                isa.wide_store(sums[r][c], &mut state[c]);
            }
        }
    }

    /// Adds the last eight columns of a head dimension that is not a multiple of sixteen.
    #[inline(always)]
    fn add_last_eight<I: Isa>(&self, isa: I, column: usize, states: &mut [&mut [f32]; R]) {
        for (state, weights) in states.iter_mut().zip(self.weights) {
            let state = &mut state[column..].as_chunks_mut::<LANES>().0[0];
            let mut sum = isa.load(state);
            for block in self.visible.blocks() {
                for position in self.visible.of(block) {
                    let values = &self.values[block % SPAN_BLOCKS][position * self.dim + column..];
                    let value = E::load(isa, &values.as_chunks().0[0]);
                    sum = isa.fma(isa.splat(weights[block % SPAN_BLOCKS][position]), value, sum);
                }
            }
            isa.store(sum, state);
        }
    }
}

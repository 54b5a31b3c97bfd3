//! The attention of the query rows of a chunk over one range of positions.

use std::marker::PhantomData;
use std::ops::Range;

use super::call::{Call, Chunk, RANGE_POSITIONS};
use crate::act::{exp, exp_up_to_one, soft_cap};
use crate::element::Element;
use crate::isa::{Isa, Kernel, WIDE};
use crate::kv::{POSITIONS, Part};

mod values;

/// Blocks of a span. The softmax weights of a span are computed together.
const SPAN_BLOCKS: usize = 4;
/// Positions of a span.
const SPAN_POSITIONS: usize = SPAN_BLOCKS * POSITIONS;

/// A value that starts at a cache line, so that no vector of it crosses one.
#[derive(Clone, Copy)]
#[repr(align(64))]
struct Aligned<T>(T);

/// The scores of one row in a span, then their softmax weights: \[blocks\]\[positions\].
type Weights = Aligned<[[f32; POSITIONS]; SPAN_BLOCKS]>;
/// Sixteen columns of a row's sum of weighted values.
type Sums = Aligned<[f32; WIDE]>;

/// The attention of one chunk over one range.
///
/// A row is one head of one token. Each row of `partial` becomes: the sum of the values weighted
/// by exp(score - largest), the largest score, the sum of the weights.
pub(super) struct RangeAttention<'a, E> {
    call: &'a Call<'a>,
    chunk: &'a Chunk,
    range: usize,
    rows: usize,
    /// The positions that each row attends to.
    visible: Vec<Range<usize>>,
    /// The last block that contains visible positions.
    last_block: usize,
    /// \[head_dim\]\[rows\].
    queries: &'a [f32],
    /// The current span's: \[rows\].
    weights: Vec<Weights>,
    /// \[head_dim / 16, rounded up\]\[rows\].
    sums: Vec<Sums>,
    softmax: Softmax,
    /// \[rows\]\[head_dim + 2\].
    partial: &'a mut [f32],
    element: PhantomData<E>,
}

/// The softmax states of all rows, and more rows up to a multiple of sixteen.
struct Softmax {
    /// The largest score of the current span.
    span_greatest: Vec<f32>,
    /// The largest score of the range, up to and including the current span.
    greatest: Vec<f32>,
    /// The sum of the weights.
    sums: Vec<f32>,
    /// The factor that adapts sums of earlier spans to the new largest score.
    factors: Vec<f32>,
}

impl<'a, E: Element> RangeAttention<'a, E> {
    /// `partial` is the partial result of the chunk in the range.
    pub(super) fn new(
        call: &'a Call<'a>,
        chunk: &'a Chunk,
        range: usize,
        queries: &'a [f32],
        partial: &'a mut [f32],
    ) -> Self {
        let past = call.attention.runs[chunk.run].past;
        let rows = chunk.tokens.len() * call.group;
        let visible = chunk.tokens.clone().map(|token| call.visible(chunk, past, token));
        let visible = visible.flat_map(|visible| std::iter::repeat_n(visible, call.group)).collect();
        let last_block = (chunk.positions.end - 1) / POSITIONS;
        let weights = vec![Aligned([[0.0; POSITIONS]; SPAN_BLOCKS]); rows];
        let sums = vec![Aligned([0.0; WIDE]); rows * call.head_dim.div_ceil(WIDE)];
        let softmax = Softmax::new(rows);
        Self {
            call,
            chunk,
            range,
            rows,
            visible,
            last_block,
            queries,
            weights,
            sums,
            softmax,
            partial,
            element: PhantomData,
        }
    }
}

impl<E: Element> Kernel for RangeAttention<'_, E> {
    type Output = ();

    #[inline(always)]
    fn run<I: Isa>(mut self, isa: I) {
        for span in self.spans() {
            let rows = self.visible_rows(span);
            self.score(isa, rows.clone(), span);
            self.find_greatest(isa, rows.clone(), span);
            self.softmax.update(isa);
            self.weigh(isa, rows.clone(), span);
            self.add_values(isa, rows, span);
        }
        let (rows, dim) = (self.rows, self.call.head_dim);
        for (row, partial) in self.partial.chunks_exact_mut(self.call.row_length()).enumerate() {
            let (values, rest) = partial.split_at_mut(dim);
            for (values, sums) in values.chunks_mut(WIDE).zip(self.sums[row..].iter().step_by(rows)) {
                values.copy_from_slice(&sums.0[..values.len()]);
            }
            rest.copy_from_slice(&[self.softmax.greatest[row], self.softmax.sums[row]]);
        }
    }
}

impl<'a, E: Element> RangeAttention<'a, E> {
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
        let mut rows = 0..self.rows;
        while !rows.is_empty() && self.visible(rows.start, span).is_empty() {
            rows.start += 1;
        }
        while !rows.is_empty() && self.visible(rows.end - 1, span).is_empty() {
            rows.end -= 1;
        }
        rows
    }

    /// Returns the blocks of a span that contain positions to which rows attend.
    #[inline(always)]
    fn visible_blocks(&self, rows: &Range<usize>, span: usize) -> Range<usize> {
        let (start, end) = (self.visible(rows.start, span).start, self.visible(rows.end - 1, span).end);
        start / POSITIONS..end.div_ceil(POSITIONS)
    }

    /// Returns the scores or weights of a row in the blocks of a span that contain positions to which the
    /// row attends.
    #[inline(always)]
    fn visible_weights(&mut self, row: usize, span: usize) -> &mut [[f32; POSITIONS]] {
        let blocks = self.visible_blocks(&(row..row + 1), span);
        &mut self.weights[row].0[blocks.start % SPAN_BLOCKS..][..blocks.len()]
    }

    /// Finds the largest score of each row in a span.
    #[inline(always)]
    fn find_greatest<I: Isa>(&mut self, isa: I, rows: Range<usize>, span: usize) {
        for row in rows {
            let mut greatest = isa.splat(f32::NEG_INFINITY);
            for scores in self.visible_weights(row, span) {
                greatest = isa.max(isa.wide_load(scores), greatest);
            }
            let [first, second] = isa.split(greatest);
            self.softmax.span_greatest[row] = isa.greatest(isa.max(first, second));
        }
    }

    /// Computes the scores of rows at the positions of a span: all rows at a block before the next
    /// block, so that the keys stay in the cache.
    #[inline(always)]
    fn score<I: Isa>(&mut self, isa: I, rows: Range<usize>, span: usize) {
        let blocks = self.visible_blocks(&rows, span);
        match rows.len() {
            1 => return self.score_few::<I, 1, 4>(isa, rows.start, blocks),
            2 => return self.score_few::<I, 2, 2>(isa, rows.start, blocks),
            3 => return self.score_few::<I, 3, 2>(isa, rows.start, blocks),
            _ => {}
        }
        for block in blocks {
            let mut row = rows.start;
            while row < rows.end {
                row += match rows.end - row {
                    16.. if I::REGISTERS > 16 => self.score_rows::<I, 16, 1>(isa, row, block),
                    8.. if I::REGISTERS > 16 => self.score_rows::<I, 8, 1>(isa, row, block),
                    4.. => self.score_rows::<I, 4, 1>(isa, row, block),
                    2.. => self.score_rows::<I, 2, 1>(isa, row, block),
                    _ => self.score_rows::<I, 1, 1>(isa, row, block),
                };
            }
        }
    }

    /// Computes the scores of `R` rows, `B` blocks at once: few rows alone have too few independent
    /// sums.
    #[inline(always)]
    fn score_few<I: Isa, const R: usize, const B: usize>(&mut self, isa: I, row: usize, blocks: Range<usize>) {
        let mut block = blocks.start;
        while block + B <= blocks.end {
            self.score_rows::<I, R, B>(isa, row, block);
            block += B;
        }
        while block < blocks.end {
            self.score_rows::<I, R, 1>(isa, row, block);
            block += 1;
        }
    }

    /// Computes the scores of `R` rows in `B` blocks, scaled and capped; a masked position has the
    /// score negative infinity. Returns `R`.
    #[inline(always)]
    fn score_rows<I: Isa, const R: usize, const B: usize>(&mut self, isa: I, row: usize, block: usize) -> usize {
        let (first, last) = (&self.visible[row], &self.visible[row + R - 1]);
        // Every row attends to the positions between the last row's first and the first row's last.
        let common = last.start..first.end;
        if last.end <= block * POSITIONS || first.start >= (block + B) * POSITIONS {
            return R;
        }
        let products = self.products::<I, R, B>(isa, row, block);
        let scale = isa.splat(self.call.attention.scale);
        for b in 0..B {
            let block = block + b;
            let mut scores = [scale; R];
            for r in 0..R {
                scores[r] = isa.mul(products[b][r], scale);
            }
            if let Some(limit) = self.call.attention.soft_cap {
                for r in 0..R {
                    scores[r] = soft_cap(isa, scores[r], limit);
                }
            }
            let weights: &mut [Weights; R] = &mut self.weights[row..].as_chunks_mut().0[0];
            for r in 0..R {
                isa.wide_store(scores[r], &mut weights[r].0[block % SPAN_BLOCKS]);
            }
            let positions = block * POSITIONS..(block + 1) * POSITIONS;
            if positions.start < common.start || positions.end > common.end {
                for r in 0..R {
                    let weights = &mut weights[r].0[block % SPAN_BLOCKS];
                    mask(weights, &positions, &self.visible[row + r]);
                }
            }
        }
        R
    }

    /// Returns the products of the keys of `B` blocks, \[head_dim\]\[16\], with the queries of `R` rows.
    #[inline(always)]
    fn products<I: Isa, const R: usize, const B: usize>(&self, isa: I, row: usize, block: usize) -> [[I::W; R]; B] {
        let mut keys: [&[[E::Stored; POSITIONS]]; B] = [&[]; B];
        for b in 0..B {
            keys[b] = &self.tile(Part::Keys, block + b).as_chunks().0[..self.call.head_dim];
        }
        let next = (block + B).min(self.last_block);
        let next = [self.tile(Part::Keys, next), self.tile(Part::Values, block)];
        let mut sums = [[isa.splat(0.0); R]; B];
        for (element, queries) in self.queries.chunks_exact(self.rows).enumerate().take(self.call.head_dim) {
            let queries: &[f32; R] = &queries[row..].as_chunks().0[0];
            for next in next {
                isa.prefetch(next, element * size_of::<[E::Stored; POSITIONS]>());
            }
            for b in 0..B {
                let keys = E::wide_load(isa, &keys[b][element]);
                for r in 0..R {
                    sums[b][r] = isa.fma(keys, isa.splat(queries[r]), sums[b][r]);
                }
            }
        }
        sums
    }

    /// Replaces the scores of rows by softmax weights.
    #[inline(always)]
    fn weigh<I: Isa>(&mut self, isa: I, rows: Range<usize>, span: usize) {
        for row in rows {
            let (greatest, mut sum) = (isa.splat(self.softmax.greatest[row]), isa.splat(0.0));
            for lanes in self.visible_weights(row, span) {
                let weights = exp_up_to_one(isa, isa.sub(isa.wide_load(lanes), greatest));
                isa.wide_store(weights, lanes);
                sum = isa.add(sum, weights);
            }
            let [first, second] = isa.split(sum);
            self.softmax.sums[row] += isa.sum(isa.add(first, second));
        }
    }

    #[inline(always)]
    fn tile(&self, part: Part, block: usize) -> &'a [E::Stored] {
        let call = self.call;
        let number = call.attention.runs[self.chunk.run].blocks[block];
        call.store.tile::<E::Stored>(call.attention.layer, number, part, self.chunk.head)
    }
}

/// Replaces the scores at positions that are not visible by negative infinity.
#[inline(always)]
fn mask(scores: &mut [f32; POSITIONS], positions: &Range<usize>, visible: &Range<usize>) {
    let within = |position: usize| position.saturating_sub(positions.start).min(POSITIONS);
    scores[..within(visible.start)].fill(f32::NEG_INFINITY);
    scores[within(visible.end)..].fill(f32::NEG_INFINITY);
}

impl Softmax {
    fn new(rows: usize) -> Self {
        let rows = rows.next_multiple_of(WIDE);
        let [span_greatest, greatest] = [0; 2].map(|_| vec![f32::NEG_INFINITY; rows]);
        Self { span_greatest, greatest, sums: vec![0.0; rows], factors: vec![0.0; rows] }
    }

    /// Updates the largest scores by those of a span. Adapts the sums to them, and computes the
    /// factors: one for rows whose largest score stays.
    #[inline(always)]
    fn update<I: Isa>(&mut self, isa: I) {
        let Self { span_greatest, greatest, sums, factors } = self;
        let span_greatest = span_greatest.as_chunks_mut::<WIDE>().0.iter_mut();
        let states = greatest.as_chunks_mut().0.iter_mut().zip(sums.as_chunks_mut().0);
        for ((new, (old, sums)), factors) in span_greatest.zip(states).zip(factors.as_chunks_mut().0) {
            let (new_lanes, old_lanes) = (isa.wide_load(new), isa.wide_load(old));
            let lanes = isa.select_less(old_lanes, new_lanes, exp(isa, isa.sub(old_lanes, new_lanes)), isa.splat(1.0));
            isa.wide_store(lanes, factors);
            isa.wide_store(isa.mul(isa.wide_load(sums), lanes), sums);
            isa.wide_store(isa.max(new_lanes, old_lanes), old);
            new.fill(f32::NEG_INFINITY);
        }
    }
}

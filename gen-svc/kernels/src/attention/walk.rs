//! Queries against the keys and values of one range of positions.

use std::array::from_fn;
use std::marker::PhantomData;
use std::ops::Range;

use super::{Call, Chunk, RANGE};
use crate::act::{exp, soft_cap};
use crate::element::Element;
use crate::isa::{Isa, LANES, Work};
use crate::kv::{POSITIONS, Part};

/// One chunk in one range. Each row of `partial` becomes: the sum of values weighted by exp(score - greatest), the greatest
/// score, the sum of the weights.
pub(super) struct Walk<'a, E> {
    call: &'a Call<'a>,
    chunk: &'a Chunk,
    blocks: Range<usize>,
    partial: &'a mut [f32],
    element: PhantomData<E>,
}

impl<'a, E: Element> Walk<'a, E> {
    pub(super) fn new(call: &'a Call<'a>, chunk: &'a Chunk, range: usize, partial: &'a mut [f32]) -> Self {
        let positions = chunk.positions.start.max(range * RANGE)..chunk.positions.end.min((range + 1) * RANGE);
        let blocks = positions.start / POSITIONS..positions.end.div_ceil(POSITIONS);
        Self { call, chunk, blocks, partial, element: PhantomData }
    }
}

impl<E: Element> Work for Walk<'_, E> {
    type Output = ();

    #[inline(always)]
    fn run<I: Isa>(mut self, isa: I) {
        for row in self.partial.chunks_exact_mut(self.call.row_length()) {
            row.fill(0.0);
            row[self.call.head_dim] = f32::NEG_INFINITY;
        }
        let rows = self.chunk.tokens.len() * self.call.group;
        for block in self.blocks.clone() {
            let mut row = 0;
            while row < rows {
                row += self.some_rows(isa, row, rows - row, block);
            }
        }
    }
}

impl<E: Element> Walk<'_, E> {
    /// As many rows as are computed together, from `row` on, of those that are left. How many they were.
    #[inline(always)]
    fn some_rows<I: Isa>(&mut self, isa: I, row: usize, left: usize, block: usize) -> usize {
        let whole = |count| (row..row + count).all(|row| self.seen(row, block).len() == POSITIONS);
        match left {
            4.. if whole(4) => self.rows::<I, 4>(isa, row, block),
            3.. if whole(3) => self.rows::<I, 3>(isa, row, block),
            2.. if whole(2) => self.rows::<I, 2>(isa, row, block),
            _ => self.rows::<I, 1>(isa, row, block),
        }
    }

    /// Which of the block's positions a row sees.
    #[inline(always)]
    fn seen(&self, row: usize, block: usize) -> Range<usize> {
        let run = &self.call.attention.runs[self.chunk.run];
        self.call.seen(run.past + self.chunk.tokens.start + row / self.call.group, block)
    }

    /// Adds a block to `R` rows, which all see the same positions of it.
    #[inline(always)]
    fn rows<I: Isa, const R: usize>(&mut self, isa: I, row: usize, block: usize) -> usize {
        let seen = self.seen(row, block);
        if seen.is_empty() {
            return R;
        }
        let (call, dim) = (self.call, self.call.head_dim);
        let number = call.attention.runs[self.chunk.run].blocks[block];
        let tile = |part| call.store.tile::<E::Stored>(call.attention.layer, number, part, self.chunk.head);
        let queries = from_fn(|r| &call.attention.queries[call.query_start(self.chunk, row + r)..][..dim]);
        let mut scores = products::<I, E, R>(isa, tile(Part::Keys), queries);
        let length = call.row_length();
        let mut states = self.partial[row * length..].chunks_exact_mut(length);
        let mut states: [&mut [f32]; R] = from_fn(|_| states.next().unwrap_or_default());
        for (scores, state) in scores.iter_mut().zip(&mut states) {
            weigh(isa, call, scores, &seen, state);
        }
        add_values::<I, E, R>(isa, tile(Part::Values), &scores, seen, dim, states);
        R
    }
}

/// Products of 16 keys, \[head_dim\]\[16\], with some queries.
#[inline(always)]
fn products<I: Isa, E: Element, const R: usize>(
    isa: I,
    keys: &[E::Stored],
    queries: [&[f32]; R],
) -> [[f32; POSITIONS]; R] {
    let mut sums = [[isa.splat(0.0); 2]; R];
    for (element, keys) in keys.as_chunks::<POSITIONS>().0.iter().enumerate() {
        let halves = keys.as_chunks::<LANES>().0;
        let keys = [E::load(isa, &halves[0]), E::load(isa, &halves[1])];
        for (sums, query) in sums.iter_mut().zip(queries) {
            let query = isa.splat(query[element]);
            sums[0] = isa.fma(keys[0], query, sums[0]);
            sums[1] = isa.fma(keys[1], query, sums[1]);
        }
    }
    let mut products = [[0.0; POSITIONS]; R];
    for (products, sums) in products.iter_mut().zip(sums) {
        let halves = products.as_chunks_mut::<LANES>().0;
        isa.store(sums[0], &mut halves[0]);
        isa.store(sums[1], &mut halves[1]);
    }
    products
}

/// Turns products into weights, and scales what a row has by now to the greatest score.
#[inline(always)]
fn weigh<I: Isa>(isa: I, call: &Call<'_>, scores: &mut [f32; POSITIONS], seen: &Range<usize>, state: &mut [f32]) {
    for lanes in scores.as_chunks_mut::<LANES>().0 {
        let scaled = isa.mul(isa.load(lanes), isa.splat(call.attention.scale));
        let capped = match call.attention.soft_cap {
            Some(limit) => soft_cap(isa, scaled, limit),
            None => scaled,
        };
        isa.store(capped, lanes);
    }
    scores[..seen.start].fill(f32::NEG_INFINITY);
    scores[seen.end..].fill(f32::NEG_INFINITY);
    let (values, rest) = state.split_at_mut(call.head_dim);
    let greatest = scores.iter().fold(rest[0], |a, b| if *b > a { *b } else { a });
    if greatest > rest[0] {
        let mut factor = [rest[0] - greatest; LANES];
        isa.store(exp(isa, isa.load(&factor)), &mut factor);
        rest[1] *= factor[0];
        for lanes in values.as_chunks_mut::<LANES>().0 {
            isa.store(isa.mul(isa.load(lanes), isa.splat(factor[0])), lanes);
        }
        rest[0] = greatest;
    }
    let mut sum = isa.splat(0.0);
    for lanes in scores.as_chunks_mut::<LANES>().0 {
        let weights = exp(isa, isa.sub(isa.load(lanes), isa.splat(rest[0])));
        isa.store(weights, lanes);
        sum = isa.add(sum, weights);
    }
    rest[1] += isa.sum(sum);
}

/// Adds values, \[16\]\[head_dim\], in the order of their positions. What a row does not see is not even multiplied by zero.
#[inline(always)]
fn add_values<I: Isa, E: Element, const R: usize>(
    isa: I,
    values: &[E::Stored],
    weights: &[[f32; POSITIONS]; R],
    seen: Range<usize>,
    dim: usize,
    mut states: [&mut [f32]; R],
) {
    let mut column = 0;
    while column + 2 * LANES <= dim {
        add_columns::<I, E, R, 2>(isa, values, weights, &seen, dim, column, &mut states);
        column += 2 * LANES;
    }
    if column < dim {
        add_columns::<I, E, R, 1>(isa, values, weights, &seen, dim, column, &mut states);
    }
}

/// `C` times eight columns, from `column` on.
#[inline(always)]
fn add_columns<I: Isa, E: Element, const R: usize, const C: usize>(
    isa: I,
    values: &[E::Stored],
    weights: &[[f32; POSITIONS]; R],
    seen: &Range<usize>,
    dim: usize,
    column: usize,
    states: &mut [&mut [f32]; R],
) {
    let mut sums = [[isa.splat(0.0); C]; R];
    for (sums, state) in sums.iter_mut().zip(states.iter()) {
        for (sum, lanes) in sums.iter_mut().zip(state[column..].as_chunks().0) {
            *sum = isa.load(lanes);
        }
    }
    for position in seen.clone() {
        let lanes = values[position * dim + column..][..C * LANES].as_chunks::<LANES>().0;
        for c in 0..C {
            let value = E::load(isa, &lanes[c]);
            for r in 0..R {
                sums[r][c] = isa.fma(isa.splat(weights[r][position]), value, sums[r][c]);
            }
        }
    }
    for (sums, state) in sums.into_iter().zip(states) {
        for (sum, lanes) in sums.into_iter().zip(state[column..].as_chunks_mut().0) {
            isa.store(sum, lanes);
        }
    }
}

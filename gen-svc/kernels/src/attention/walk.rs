//! Queries against the keys and values of one range of positions.

use std::array::from_fn;
use std::marker::PhantomData;
use std::ops::Range;

use super::{Call, Chunk, RANGE};
use crate::act::{exp, soft_cap};
use crate::element::Element;
use crate::isa::{Isa, LANES, WIDE, Work};
use crate::kv::{POSITIONS, Part};

/// One chunk in one range. Each row of `partial` becomes: the sum of values weighted by exp(score - greatest), the greatest
/// score, the sum of the weights.
pub(super) struct Walk<'a, E> {
    call: &'a Call<'a>,
    chunk: &'a Chunk,
    blocks: Range<usize>,
    rows: Vec<Row<'a>>,
    partial: &'a mut [f32],
    element: PhantomData<E>,
}

/// One head of one token.
struct Row<'a> {
    position: usize,
    /// \[head_dim\].
    query: &'a [f32],
}

impl<'a, E: Element> Walk<'a, E> {
    pub(super) fn new(call: &'a Call<'a>, chunk: &'a Chunk, range: usize, partial: &'a mut [f32]) -> Self {
        let positions = chunk.positions.start.max(range * RANGE)..chunk.positions.end.min((range + 1) * RANGE);
        let blocks = positions.start / POSITIONS..positions.end.div_ceil(POSITIONS);
        let past = call.attention.runs[chunk.run].past + chunk.tokens.start;
        let row = |row: usize| Row {
            position: past + row / call.group,
            query: &call.attention.queries[call.query_start(chunk, row)..][..call.head_dim],
        };
        let rows = (0..chunk.tokens.len() * call.group).map(row).collect();
        Self { call, chunk, blocks, rows, partial, element: PhantomData }
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
        for block in self.blocks.clone() {
            let mut row = 0;
            while row < self.rows.len() {
                row += self.some_rows(isa, row, block);
            }
        }
    }
}

impl<E: Element> Walk<'_, E> {
    /// As many rows as can be computed together, from `row` on. How many they were.
    #[inline(always)]
    fn some_rows<I: Isa>(&mut self, isa: I, row: usize, block: usize) -> usize {
        match self.rows.len() - row {
            8.. if I::REGISTERS > 16 && self.see_all(row, row + 7, block) => self.add_block::<I, 8>(isa, row, block),
            4.. if self.see_all(row, row + 3, block) => self.add_block::<I, 4>(isa, row, block),
            3.. if self.see_all(row, row + 2, block) => self.add_block::<I, 3>(isa, row, block),
            2.. if self.see_all(row, row + 1, block) => self.add_block::<I, 2>(isa, row, block),
            _ => self.add_block::<I, 1>(isa, row, block),
        }
    }

    /// Whether two rows, and so those between them, see the whole block.
    #[inline(always)]
    fn see_all(&self, first: usize, last: usize, block: usize) -> bool {
        let seen = |row: usize| self.call.seen(self.rows[row].position, block);
        seen(first).end == POSITIONS && seen(last).start == 0
    }

    /// Adds a block to `R` rows, which all see the same positions of it.
    #[inline(always)]
    fn add_block<I: Isa, const R: usize>(&mut self, isa: I, row: usize, block: usize) -> usize {
        let seen = self.call.seen(self.rows[row].position, block);
        if seen.is_empty() {
            return R;
        }
        let (call, length) = (self.call, self.call.row_length());
        let number = call.attention.runs[self.chunk.run].blocks[block];
        let tile = |part| call.store.tile::<E::Stored>(call.attention.layer, number, part, self.chunk.head);
        let products = products::<I, E, R>(isa, tile(Part::Keys), from_fn(|r| self.rows[row + r].query));
        let mut weights = [[0.0; POSITIONS]; R];
        let mut states = self.partial[row * length..].chunks_exact_mut(length);
        let states: [&mut [f32]; R] = from_fn(|_| states.next().unwrap_or_default());
        for r in 0..R {
            weigh(isa, call, products[r], &seen, states[r], &mut weights[r]);
        }
        Weighted::<E, R> { values: tile(Part::Values), weights: &weights, seen, dim: call.head_dim }.add(isa, states);
        R
    }
}

/// Products of 16 keys, \[head_dim\]\[16\], with some queries.
#[inline(always)]
fn products<I: Isa, E: Element, const R: usize>(isa: I, keys: &[E::Stored], queries: [&[f32]; R]) -> [I::W; R] {
    let keys = keys.as_chunks::<POSITIONS>().0;
    let length = keys.len();
    let queries: [_; R] = from_fn(|r| &queries[r][..length]);
    let mut sums = [isa.wide_splat(0.0); R];
    for element in 0..length {
        let keys = E::wide_load(isa, &keys[element]);
        for r in 0..R {
            sums[r] = isa.wide_fma(keys, isa.wide_splat(queries[r][element]), sums[r]);
        }
    }
    sums
}

/// Turns products into weights, and scales what a row has by now to the greatest score.
#[inline(always)]
fn weigh<I: Isa>(
    isa: I,
    call: &Call<'_>,
    products: I::W,
    seen: &Range<usize>,
    state: &mut [f32],
    weights: &mut [f32; POSITIONS],
) {
    let [first, second] = scores(isa, call, isa.split(products), seen);
    let (values, rest) = state.split_at_mut(call.head_dim);
    let most = isa.max(first, second);
    if isa.any_greater(most, isa.splat(rest[0])) {
        let greatest = isa.greatest(most);
        let mut factor = [rest[0] - greatest; LANES];
        isa.store(exp(isa, isa.load(&factor)), &mut factor);
        rest[1] *= factor[0];
        for lanes in values.as_chunks_mut::<LANES>().0 {
            isa.store(isa.mul(isa.load(lanes), isa.splat(factor[0])), lanes);
        }
        rest[0] = greatest;
    }
    let greatest = isa.splat(rest[0]);
    let (first, second) = (exp(isa, isa.sub(first, greatest)), exp(isa, isa.sub(second, greatest)));
    let halves = weights.as_chunks_mut::<LANES>().0;
    isa.store(first, &mut halves[0]);
    isa.store(second, &mut halves[1]);
    rest[1] += isa.sum(isa.add(first, second));
}

/// Scaled and capped; negative infinity where nothing is seen.
#[inline(always)]
fn scores<I: Isa>(isa: I, call: &Call<'_>, products: [I::F; 2], seen: &Range<usize>) -> [I::F; 2] {
    let scale = isa.splat(call.attention.scale);
    let mut scores = [isa.mul(products[0], scale), isa.mul(products[1], scale)];
    if let Some(limit) = call.attention.soft_cap {
        scores = [soft_cap(isa, scores[0], limit), soft_cap(isa, scores[1], limit)];
    }
    if seen.len() < POSITIONS {
        let mut all = [[0.0; LANES]; 2];
        isa.store(scores[0], &mut all[0]);
        isa.store(scores[1], &mut all[1]);
        all.as_flattened_mut()[..seen.start].fill(f32::NEG_INFINITY);
        all.as_flattened_mut()[seen.end..].fill(f32::NEG_INFINITY);
        scores = [isa.load(&all[0]), isa.load(&all[1])];
    }
    scores
}

/// The values of a block, and their weights in `R` rows.
struct Weighted<'a, E: Element, const R: usize> {
    /// \[16\]\[head_dim\].
    values: &'a [E::Stored],
    weights: &'a [[f32; POSITIONS]; R],
    seen: Range<usize>,
    /// Of a head.
    dim: usize,
}

impl<E: Element, const R: usize> Weighted<'_, E, R> {
    /// Adds them to rows in the order of their positions. What a row does not see is not even multiplied by zero.
    #[inline(always)]
    fn add<I: Isa>(&self, isa: I, mut states: [&mut [f32]; R]) {
        let mut column = 0;
        while I::REGISTERS > 16 && column + 2 * WIDE <= self.dim {
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

    /// `C` times sixteen columns, from `column` on.
    #[inline(always)]
    fn add_columns<I: Isa, const C: usize>(&self, isa: I, column: usize, states: &mut [&mut [f32]; R]) {
        let mut sums = [[isa.wide_splat(0.0); C]; R];
        for r in 0..R {
            let state = states[r][column..].as_chunks::<WIDE>().0;
            for c in 0..C {
                sums[r][c] = isa.wide_load(&state[c]);
            }
        }
        for position in self.seen.clone() {
            let lanes = self.values[position * self.dim + column..][..C * WIDE].as_chunks::<WIDE>().0;
            for c in 0..C {
                let value = E::wide_load(isa, &lanes[c]);
                for (sums, weights) in sums.iter_mut().zip(self.weights) {
                    sums[c] = isa.wide_fma(isa.wide_splat(weights[position]), value, sums[c]);
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

    /// What is left where heads are no multiple of sixteen wide.
    #[inline(always)]
    fn add_last_eight<I: Isa>(&self, isa: I, column: usize, states: &mut [&mut [f32]; R]) {
        for (state, weights) in states.iter_mut().zip(self.weights) {
            let state = &mut state[column..].as_chunks_mut::<LANES>().0[0];
            let mut sum = isa.load(state);
            for position in self.seen.clone() {
                let value = E::load(isa, &self.values[position * self.dim + column..].as_chunks().0[0]);
                sum = isa.fma(isa.splat(weights[position]), value, sum);
            }
            isa.store(sum, state);
        }
    }
}

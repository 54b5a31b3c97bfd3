//! The sums of the weighted values.

use std::ops::Range;

use super::{RangeAttention, SPAN_BLOCKS, Sums, Weights};
use crate::element::Element;
use crate::isa::{Isa, LANES, WIDE};
use crate::kv::{POSITIONS, Part};

/// The values of a span and the weights of `R` rows.
struct Weighted<'a, E: Element, const R: usize> {
    /// Values of each visible block: \[16\]\[head_dim\].
    values: &'a [&'a [E::Stored]; SPAN_BLOCKS],
    weights: &'a [Weights; R],
    /// The positions to add: all rows attend to them.
    positions: Range<usize>,
    /// The factors of the sums before the positions are added.
    factors: &'a [f32; R],
    /// Head dimension.
    dim: usize,
    /// Rows of the chunk.
    rows: usize,
}

impl<E: Element> RangeAttention<'_, E> {
    /// Adds the weighted values of a span to the sums of rows, in the order of the positions.
    ///
    /// Values at masked positions are skipped, since zero times infinity would be NaN.
    #[inline(always)]
    pub(super) fn add_values<I: Isa>(&mut self, isa: I, rows: Range<usize>, span: usize) {
        let mut values: [&[E::Stored]; SPAN_BLOCKS] = [&[]; SPAN_BLOCKS];
        for block in self.visible_blocks(&rows, span) {
            values[block % SPAN_BLOCKS] = self.tile(Part::Values, block);
        }
        let mut row = rows.start;
        while row < rows.end {
            row += match rows.end - row {
                16.. if I::REGISTERS > 16 => self.add_rows::<I, 16, 1>(isa, row, span, &values),
                8.. if I::REGISTERS > 16 => self.add_rows::<I, 8, 2>(isa, row, span, &values),
                4.. => self.add_rows::<I, 4, 1>(isa, row, span, &values),
                3 => self.add_rows::<I, 3, 2>(isa, row, span, &values),
                2 => self.add_rows::<I, 2, 2>(isa, row, span, &values),
                _ => self.add_rows::<I, 1, 4>(isa, row, span, &values),
            };
        }
    }

    /// Adds the values of a span to `R` rows: together at the positions that all rows attend to, and
    /// row by row at the positions before and after these. Returns `R`.
    #[inline(always)]
    fn add_rows<I: Isa, const R: usize, const C: usize>(
        &mut self,
        isa: I,
        row: usize,
        span: usize,
        values: &[&[E::Stored]; SPAN_BLOCKS],
    ) -> usize {
        let start = self.visible(row + R - 1, span).start;
        let common = start..self.visible(row, span).end.max(start);
        for r in 0..R {
            let visible = self.visible(row + r, span);
            self.add_positions::<I, 1, 4>(isa, row + r, visible.start..visible.end.min(common.start), values);
        }
        self.add_positions::<I, R, C>(isa, row, common.clone(), values);
        for r in 0..R {
            let visible = self.visible(row + r, span);
            self.add_positions::<I, 1, 4>(isa, row + r, visible.start.max(common.end)..visible.end, values);
        }
        R
    }

    /// Adds values at positions that all of `R` rows attend to, `C` times sixteen columns at once.
    #[inline(always)]
    fn add_positions<I: Isa, const R: usize, const C: usize>(
        &mut self,
        isa: I,
        row: usize,
        positions: Range<usize>,
        values: &[&[E::Stored]; SPAN_BLOCKS],
    ) {
        if positions.is_empty() {
            return;
        }
        let (dim, rows) = (self.call.head_dim, self.rows);
        let weights = &self.weights[row..].as_chunks().0[0];
        let sums = &mut self.sums[row..];
        let factors: &mut [f32; R] = &mut self.softmax.factors[row..].as_chunks_mut().0[0];
        Weighted::<E, R> { values, weights, positions, factors, dim, rows }.add::<I, C>(isa, sums);
        *factors = [1.0; R];
    }
}

impl<E: Element, const R: usize> Weighted<'_, E, R> {
    /// `sums` starts at the first row: \[columns / 16\]\[rows of the chunk\].
    #[inline(always)]
    fn add<I: Isa, const C: usize>(&self, isa: I, sums: &mut [Sums]) {
        let mut column = 0;
        while column + C * WIDE <= self.dim {
            self.add_columns::<I, C>(isa, column, sums);
            column += C * WIDE;
        }
        while column + WIDE <= self.dim {
            self.add_columns::<I, 1>(isa, column, sums);
            column += WIDE;
        }
        if column < self.dim {
            self.add_last_eight(isa, column, sums);
        }
    }

    /// Adds `C` times sixteen columns, starting at `column`.
    #[inline(always)]
    fn add_columns<I: Isa, const C: usize>(&self, isa: I, column: usize, states: &mut [Sums]) {
        let mut sums = [[isa.splat(0.0); R]; C];
        for c in 0..C {
            let states: &[Sums; R] = &states[(column / WIDE + c) * self.rows..].as_chunks().0[0];
            for r in 0..R {
                sums[c][r] = isa.mul(isa.wide_load(&states[r].0), isa.splat(self.factors[r]));
            }
        }
        for block in self.positions.start / POSITIONS..self.positions.end.div_ceil(POSITIONS) {
            let first = block * POSITIONS;
            let positions = self.positions.start.max(first) - first..self.positions.end.min(first + POSITIONS) - first;
            let block = block % SPAN_BLOCKS;
            for position in positions {
                let values = self.values[block][position * self.dim + column..][..C * WIDE].as_chunks().0;
                for c in 0..C {
                    let value = E::wide_load(isa, &values[c]);
                    for r in 0..R {
                        sums[c][r] = isa.fma(isa.splat(self.weights[r].0[block][position]), value, sums[c][r]);
                    }
                }
            }
        }
        for c in 0..C {
            let states: &mut [Sums; R] = &mut states[(column / WIDE + c) * self.rows..].as_chunks_mut().0[0];
            for r in 0..R {
                isa.wide_store(sums[c][r], &mut states[r].0);
            }
        }
    }

    /// Adds the last eight columns of a head dimension that is not a multiple of sixteen.
    #[inline(always)]
    fn add_last_eight<I: Isa>(&self, isa: I, column: usize, states: &mut [Sums]) {
        for r in 0..R {
            let state = &mut states[column / WIDE * self.rows + r].0.as_chunks_mut::<LANES>().0[0];
            let mut sum = isa.mul(isa.load(state), isa.splat(self.factors[r]));
            for position in self.positions.clone() {
                let block = position / POSITIONS % SPAN_BLOCKS;
                let values = &self.values[block][position % POSITIONS * self.dim + column..];
                let weight = isa.splat(self.weights[r].0[block][position % POSITIONS]);
                sum = isa.fma(weight, E::load(isa, &values.as_chunks().0[0]), sum);
            }
            isa.store(sum, state);
        }
    }
}

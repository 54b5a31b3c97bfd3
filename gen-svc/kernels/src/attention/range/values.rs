//! The sums of the weighted values.

use std::ops::Range;

use super::{Factors, GROUP_ROWS, Group, RangeAttention, SPAN_BLOCKS, SPAN_POSITIONS};
use crate::attention::call::RANGE_POSITIONS;
use crate::attention::format::{Format, Lane, Multiply};
use crate::attention::partial::{Aligned, Vector};
use crate::isa::{Arithmetic, WIDE, Wide};
use crate::kv::{POSITIONS, Part};

/// The values of a span: those of each visible block, \[16 / depth\]\[head_dim\].
struct Values<'a, L> {
    blocks: [&'a [L]; SPAN_BLOCKS],
    /// Head dimension.
    dim: usize,
}

impl<F: Format> RangeAttention<'_, F> {
    /// Multiplies the sums of a group's rows by factors. In the first span of a row, the sums become zero.
    #[inline(always)]
    pub(super) fn scale<M: Multiply<Format = F>>(&mut self, multiply: M, group: &Group, factors: &[f32; GROUP_ROWS]) {
        let isa = multiply.isa();
        for row in group.rows.clone() {
            let factor = factors[row % GROUP_ROWS];
            let start = self.visible[row].start.max(self.range * RANGE_POSITIONS);
            let sums = &mut self.partial.values[row * self.shape.vectors..][..self.shape.vectors];
            if start / SPAN_POSITIONS == group.span {
                sums.fill(Aligned([0.0; WIDE]));
            } else if factor != 1.0 {
                for sums in sums {
                    isa.wide_store(multiply.scale(isa.wide_load(&sums.0), factor), &mut sums.0);
                }
            }
        }
    }

    /// Adds the weighted values of a span to the sums of a group's rows, in the order of the
    /// positions.
    ///
    /// Values at masked positions are skipped, since zero times infinity would be NaN.
    #[inline(always)]
    pub(super) fn add_values<M: Multiply<Format = F>>(
        &mut self,
        multiply: M,
        group: &Group,
        weights: &[Factors<F>; GROUP_ROWS],
    ) {
        let mut values = Values { blocks: [&[]; SPAN_BLOCKS], dim: self.call.head_dim };
        for block in self.visible_blocks(group) {
            values.blocks[block % SPAN_BLOCKS] = self.tile(Part::Values, block);
        }
        let vectors = self.shape.vectors;
        let (first, last) = (self.steps(group.rows.start, group.span), self.steps(group.rows.end - 1, group.span));
        let common = last.start..first.end.max(last.start);
        let is_whole = self.sees_whole_span(group);
        if !is_whole {
            self.add_rest::<M, false>(multiply, group, &common, weights, &values);
        }
        let mut row = group.rows.start;
        while row < group.rows.end {
            let (weights, sums) = (&weights[row % GROUP_ROWS..], &mut self.partial.values[row * vectors..]);
            row += match group.rows.end - row {
                16.. if M::Isa::REGISTERS > 16 => values.add::<M, 16, 1>(multiply, &common, weights, sums),
                8.. if M::Isa::REGISTERS > 16 => values.add::<M, 8, 2>(multiply, &common, weights, sums),
                4.. => values.add::<M, 4, 1>(multiply, &common, weights, sums),
                3 => values.add::<M, 3, 2>(multiply, &common, weights, sums),
                2 => values.add::<M, 2, 2>(multiply, &common, weights, sums),
                _ => values.add::<M, 1, 4>(multiply, &common, weights, sums),
            };
        }
        if !is_whole {
            self.add_rest::<M, true>(multiply, group, &common, weights, &values);
        }
    }

    /// Adds, row by row, the values before or after the steps that all rows of a group have in
    /// `common`.
    #[inline(always)]
    fn add_rest<M: Multiply<Format = F>, const AFTER: bool>(
        &mut self,
        multiply: M,
        group: &Group,
        common: &Range<usize>,
        weights: &[Factors<F>; GROUP_ROWS],
        values: &Values<'_, F::Lane>,
    ) {
        for row in group.rows.clone() {
            let weights = &weights[row % GROUP_ROWS..];
            let (visible, steps) = (self.visible(row, group.span), self.steps(row, group.span));
            let sums = &mut self.partial.values[row * self.shape.vectors..][..self.shape.vectors];
            if AFTER {
                values.add::<M, 1, 4>(multiply, &(steps.start.max(common.end)..steps.end), weights, sums);
            }
            let position = if AFTER { visible.end } else { visible.start };
            if position % F::DEPTH != 0 {
                let (step, kept) = (position % SPAN_POSITIONS / F::DEPTH, usize::from(!AFTER));
                values.add_half(multiply, step, kept, &weights[0], sums);
            }
            if !AFTER {
                values.add::<M, 1, 4>(multiply, &(steps.start..steps.end.min(common.start)), weights, sums);
            }
        }
    }

    /// Returns the steps of a span whose positions a row attends to. A step is the positions of one
    /// lane.
    #[inline(always)]
    fn steps(&self, row: usize, span: usize) -> Range<usize> {
        let (visible, first) = (self.visible(row, span), span * SPAN_POSITIONS);
        (visible.start - first).div_ceil(F::DEPTH)..(visible.end - first) / F::DEPTH
    }
}

impl<L: Copy> Values<'_, L> {
    /// Adds the values of some steps to the sums of `R` rows, `C` times sixteen columns at once.
    /// Returns `R`.
    #[inline(always)]
    fn add<M: Multiply, const R: usize, const C: usize>(
        &self,
        multiply: M,
        steps: &Range<usize>,
        weights: &[Factors<M::Format>],
        sums: &mut [Vector],
    ) -> usize
    where
        M::Format: Format<Lane = L>,
    {
        if steps.is_empty() {
            return R;
        }
        let (weights, mut column) = (&weights.as_chunks().0[0], 0);
        while column + C * WIDE <= self.dim {
            self.add_columns::<M, R, C, true>(multiply, column, steps, weights, sums);
            column += C * WIDE;
        }
        while C > 1 && column + WIDE <= self.dim {
            self.add_columns::<M, R, 1, true>(multiply, column, steps, weights, sums);
            column += WIDE;
        }
        if column < self.dim {
            self.add_columns::<M, R, 1, false>(multiply, column, steps, weights, sums);
        }
        R
    }

    /// Adds `C` times sixteen columns, starting at `column`, or the last eight if they are not `WHOLE`.
    #[inline(always)]
    fn add_columns<M: Multiply, const R: usize, const C: usize, const WHOLE: bool>(
        &self,
        multiply: M,
        column: usize,
        steps: &Range<usize>,
        weights: &[Factors<M::Format>; R],
        states: &mut [Vector],
    ) where
        M::Format: Format<Lane = L>,
    {
        let (isa, per_block) = (multiply.isa(), POSITIONS / M::Format::DEPTH);
        let vectors = self.dim.div_ceil(WIDE);
        let mut sums = [[isa.splat(0.0); R]; C];
        for r in 0..R {
            let states: &[Vector; C] = &states[r * vectors + column / WIDE..].as_chunks().0[0];
            for c in 0..C {
                sums[c][r] = isa.wide_load(&states[c].0);
            }
        }
        for block in steps.start / per_block..steps.end.div_ceil(per_block) {
            let first = block * per_block;
            for step in steps.start.max(first)..steps.end.min(first + per_block) {
                let values = &self.blocks[block][(step - first) * self.dim + column..];
                for c in 0..C {
                    let lanes = load::<M, WHOLE>(multiply, &values[c * WIDE..]);
                    for r in 0..R {
                        sums[c][r] = multiply.add(sums[c][r], lanes, weights[r].0[step]);
                    }
                }
            }
        }
        for r in 0..R {
            let states: &mut [Vector; C] = &mut states[r * vectors + column / WIDE..].as_chunks_mut().0[0];
            for c in 0..C {
                isa.wide_store(sums[c][r], &mut states[c].0);
            }
        }
    }

    /// Adds the values at one position of a step to the sums of a row: at the `kept` of the positions.
    #[inline(always)]
    fn add_half<M: Multiply>(
        &self,
        multiply: M,
        step: usize,
        kept: usize,
        weights: &Factors<M::Format>,
        sums: &mut [Vector],
    ) where
        M::Format: Format<Lane = L>,
    {
        let (isa, per_block) = (multiply.isa(), POSITIONS / M::Format::DEPTH);
        let values = &self.blocks[step / per_block][step % per_block * self.dim..][..self.dim];
        for (sums, values) in sums.iter_mut().zip(values.chunks(WIDE)) {
            let mut masked = [values[0]; WIDE];
            for (masked, value) in masked.iter_mut().zip(values) {
                *masked = M::Format::mask(*value, kept);
            }
            let sum = multiply.add(isa.wide_load(&sums.0), multiply.load(&masked), weights.0[step]);
            isa.wide_store(sum, &mut sums.0);
        }
    }
}

/// Loads sixteen lanes, or eight.
#[inline(always)]
fn load<M: Multiply, const WHOLE: bool>(multiply: M, from: &[Lane<M>]) -> M::Lanes {
    if WHOLE { multiply.load(&from.as_chunks().0[0]) } else { multiply.load_eight(&from.as_chunks().0[0]) }
}

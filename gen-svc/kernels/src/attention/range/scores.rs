//! The scores of a span.

use std::ops::Range;

use super::{FACTORS, Factors, GROUP_ROWS, Group, RangeAttention, SPAN_BLOCKS, SPAN_POSITIONS, Scores};
use crate::act::soft_cap;
use crate::attention::format::{Format, Lane, Multiply, Numbers};
use crate::isa::{Arithmetic, Isa, Wide};
use crate::kv::{POSITIONS, Part};

impl<F: Format> RangeAttention<'_, F> {
    /// Computes the scores of a group, scaled and capped. At positions to which a row does not attend,
    /// they are negative infinity.
    #[inline(always)]
    pub(super) fn score<M: Multiply<Format = F>>(
        &self,
        multiply: M,
        group: &Group,
        queries: &[Factors<F>],
        scores: &mut [Scores; GROUP_ROWS],
    ) {
        let (rows, blocks) = (group.rows.clone(), self.visible_blocks(group));
        self.score_blocks(multiply, &rows, &blocks, queries, scores);
        if let Some(limit) = self.call.attention.soft_cap {
            let isa = multiply.isa();
            for row in rows.clone() {
                for block in blocks.clone() {
                    let scores = &mut scores[row % GROUP_ROWS].0[block % SPAN_BLOCKS];
                    isa.wide_store(soft_cap(isa, isa.wide_load(scores), limit), scores);
                }
            }
        }
        if self.sees_whole_span(group) {
            return;
        }
        let first = group.span * SPAN_POSITIONS;
        for row in rows {
            let visible = self.visible(row, group.span);
            let scores = scores[row % GROUP_ROWS].0.as_flattened_mut();
            scores[..visible.start - first].fill(f32::NEG_INFINITY);
            scores[visible.end - first..].fill(f32::NEG_INFINITY);
        }
    }

    /// Computes the products of keys and queries, scaled: all rows at a block before the next block.
    #[inline(always)]
    fn score_blocks<M: Multiply<Format = F>>(
        &self,
        multiply: M,
        rows: &Range<usize>,
        blocks: &Range<usize>,
        queries: &[Factors<F>],
        scores: &mut [Scores; GROUP_ROWS],
    ) {
        match rows.len() {
            1 => return self.score_few::<M, 1, 4>(multiply, rows.start, blocks, queries, scores),
            2 => return self.score_few::<M, 2, 2>(multiply, rows.start, blocks, queries, scores),
            3 => return self.score_few::<M, 3, 2>(multiply, rows.start, blocks, queries, scores),
            _ => {}
        }
        let has_many = M::Isa::REGISTERS > 16;
        for block in blocks.clone() {
            let mut row = rows.start;
            while row < rows.end {
                row += match rows.end - row {
                    16.. if has_many => self.score_rows::<M, 16, 1>(multiply, row, block, queries, scores),
                    8.. if has_many => self.score_rows::<M, 8, 1>(multiply, row, block, queries, scores),
                    4.. => self.score_rows::<M, 4, 1>(multiply, row, block, queries, scores),
                    2.. => self.score_rows::<M, 2, 1>(multiply, row, block, queries, scores),
                    _ => self.score_rows::<M, 1, 1>(multiply, row, block, queries, scores),
                };
            }
        }
    }

    /// Computes the scores of `R` rows, `B` blocks at once: few rows alone have too few independent
    /// sums.
    #[inline(always)]
    fn score_few<M: Multiply<Format = F>, const R: usize, const B: usize>(
        &self,
        multiply: M,
        row: usize,
        blocks: &Range<usize>,
        queries: &[Factors<F>],
        scores: &mut [Scores; GROUP_ROWS],
    ) {
        let mut block = blocks.start;
        while block + B <= blocks.end {
            self.score_rows::<M, R, B>(multiply, row, block, queries, scores);
            block += B;
        }
        while block < blocks.end {
            self.score_rows::<M, R, 1>(multiply, row, block, queries, scores);
            block += 1;
        }
    }

    /// Computes the scores of `R` rows in `B` blocks, unless no row attends to these. Returns `R`.
    #[inline(always)]
    fn score_rows<M: Multiply<Format = F>, const R: usize, const B: usize>(
        &self,
        multiply: M,
        row: usize,
        block: usize,
        queries: &[Factors<F>],
        scores: &mut [Scores; GROUP_ROWS],
    ) -> usize {
        let isa = multiply.isa();
        let (first, last) = (&self.visible[row], &self.visible[row + R - 1]);
        let positions = block * POSITIONS..(block + B) * POSITIONS;
        let scores: &mut [Scores; R] = &mut scores[row % GROUP_ROWS..].as_chunks_mut().0[0];
        if last.end > positions.start && first.start < positions.end {
            let products = self.products::<M, R, B>(multiply, row, block, queries);
            let scale = isa.splat(self.call.attention.scale);
            for b in 0..B {
                for r in 0..R {
                    isa.wide_store(isa.mul(products[b][r], scale), &mut scores[r].0[(block + b) % SPAN_BLOCKS]);
                }
            }
        }
        R
    }

    /// Returns the products of the keys of `B` blocks with the queries of `R` rows.
    #[inline(always)]
    fn products<M: Multiply<Format = F>, const R: usize, const B: usize>(
        &self,
        multiply: M,
        row: usize,
        block: usize,
        queries: &[Factors<F>],
    ) -> [[Numbers<M>; R]; B] {
        let isa = multiply.isa();
        let (steps, rows) = (self.call.head_dim / F::DEPTH, self.shape.rows);
        let mut keys: [&[[Lane<M>; POSITIONS]]; B] = [&[]; B];
        for b in 0..B {
            keys[b] = &self.tile(Part::Keys, block + b).as_chunks().0[..steps];
        }
        let mut next: [[&[Lane<M>]; 2]; B] = [[&[]; 2]; B];
        for b in 0..B {
            let keys = self.tile(Part::Keys, (block + B + b).min(self.last_block));
            next[b] = [keys, self.tile(Part::Values, block + b)];
        }
        let mut sums = [[isa.splat(0.0); R]; B];
        for (part, queries) in queries.chunks_exact(rows).enumerate() {
            let queries: &[Factors<F>; R] = &queries[row..].as_chunks().0[0];
            for step in 0..FACTORS.min(steps - part * FACTORS) {
                let index = part * FACTORS + step;
                for b in 0..B {
                    isa.prefetch(next[b][0], index * size_of::<[Lane<M>; POSITIONS]>());
                    isa.prefetch(next[b][1], index * size_of::<[Lane<M>; POSITIONS]>());
                    let keys = multiply.load(&keys[b][index]);
                    for r in 0..R {
                        sums[b][r] = multiply.add(sums[b][r], keys, queries[r].0[step]);
                    }
                }
            }
        }
        sums
    }
}

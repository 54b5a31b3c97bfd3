//! The softmax weights of a span.

use super::{Factors, GROUP_ROWS, Group, RangeAttention, Scores};
use crate::act::exp;
use crate::attention::format::{Format, Multiply, Numbers};
use crate::isa::{Arithmetic, Wide};

impl<F: Format> RangeAttention<'_, F> {
    /// Computes the weights of a group's scores, and adds them to the sums of the weights. Returns the
    /// factors that adapt sums of earlier spans to the new largest scores: one for rows whose largest
    /// score stays.
    #[inline(always)]
    pub(super) fn weigh<M: Multiply<Format = F>>(
        &mut self,
        multiply: M,
        group: &Group,
        scores: &[Scores; GROUP_ROWS],
        weights: &mut [Factors<F>; GROUP_ROWS],
    ) -> [f32; GROUP_ROWS] {
        let isa = multiply.isa();
        let none: Numbers<M> = isa.splat(f32::NEG_INFINITY);
        let mut rows = [none; GROUP_ROWS];
        for row in group.rows.clone() {
            let r = row % GROUP_ROWS;
            for block in &scores[r].0 {
                rows[r] = isa.max(isa.wide_load(block), rows[r]);
            }
        }
        let index = group.rows.start / GROUP_ROWS;
        let (greatest, sums) = (&mut self.partial.greatest[index].0, &mut self.partial.sums[index].0);
        let (old, new) = (isa.wide_load(greatest), isa.greatest_lanes(&rows));
        let factors = isa.select_less(old, new, exp(isa, isa.sub(old, new)), isa.splat(1.0));
        isa.wide_store(isa.max(new, old), greatest);
        rows = [isa.splat(0.0); GROUP_ROWS];
        for row in group.rows.clone() {
            let r = row % GROUP_ROWS;
            rows[r] = multiply.weigh(&scores[r].0, greatest[r], &mut weights[r].0);
        }
        let kept = isa.mul(isa.wide_load(sums), factors);
        isa.wide_store(isa.add(kept, isa.sums(&rows)), sums);
        let mut lanes = [0.0; GROUP_ROWS];
        isa.wide_store(factors, &mut lanes);
        lanes
    }
}

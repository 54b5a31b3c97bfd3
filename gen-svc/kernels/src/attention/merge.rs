//! Merges the partial results of the ranges into outputs.

use super::call::{Call, Chunk};
use super::partial::{Partial, Vector};
use crate::act::exp;
use crate::disjoint::Disjoint;
use crate::isa::{Isa, Kernel, LANES, WIDE};

/// The outputs of one chunk. No other task writes them.
pub(super) struct Merge<'a> {
    pub(super) call: &'a Call<'a>,
    pub(super) chunk: &'a Chunk,
    pub(super) partials: &'a [Vector],
    pub(super) out: &'a Disjoint<'a, f32>,
}

impl Kernel for Merge<'_> {
    type Output = ();

    #[inline(always)]
    fn run<I: Isa>(self, isa: I) {
        let (call, shape) = (self.call, self.call.partial(self.chunk));
        let ranges = &self.partials[self.chunk.start..][..shape.length() * self.chunk.ranges().len()];
        for first in (0..shape.rows).step_by(WIDE) {
            let mut totals = Totals { greatest: [f32::NEG_INFINITY; WIDE], sums: [0.0; WIDE] };
            let rows = first..shape.rows.min(first + WIDE);
            for (index, partial) in ranges.chunks_exact(shape.length()).enumerate() {
                let partial = shape.split(partial);
                let factors = totals.add(isa, &partial, first / WIDE);
                for row in rows.clone() {
                    // SAFETY: only this task writes the chunk's rows, one row at a time.
                    let out = unsafe { self.out.slice(call.query_start(self.chunk, row), call.head_dim) };
                    if index == 0 {
                        out.fill(0.0);
                    }
                    if let Some(factors) = factors[row - first] {
                        add(isa, factors, &partial.values[row * shape.vectors..][..shape.vectors], out);
                    }
                }
            }
            for row in rows {
                // SAFETY: as above.
                let out = unsafe { self.out.slice(call.query_start(self.chunk, row), call.head_dim) };
                let sum = isa.splat(totals.sums[row - first]);
                for lanes in out.as_chunks_mut::<LANES>().0 {
                    isa.store(isa.div(isa.load(lanes), sum), lanes);
                }
            }
        }
    }
}

/// The softmax states of sixteen rows after the merged ranges. The weighted values are in the output.
struct Totals {
    greatest: [f32; WIDE],
    sums: [f32; WIDE],
}

impl Totals {
    /// Adds the states of one range, a vector of each. Returns the factors of each row's earlier values
    /// and of its values in the range; `None` if the row attends to no position there.
    #[inline(always)]
    fn add<I: Isa>(
        &mut self,
        isa: I,
        partial: &Partial<&[Vector], &[Vector]>,
        vector: usize,
    ) -> [Option<[f32; 2]>; WIDE] {
        let (greatest, sums) = (&partial.greatest[vector].0, &partial.sums[vector].0);
        let (old, new) = (isa.wide_load(&self.greatest), isa.wide_load(greatest));
        let both = isa.max(new, old);
        let (mut kept, mut added) = ([0.0; WIDE], [0.0; WIDE]);
        isa.wide_store(exp(isa, isa.sub(old, both)), &mut kept);
        isa.wide_store(exp(isa, isa.sub(new, both)), &mut added);
        let mut factors = [None; WIDE];
        for r in 0..WIDE {
            if sums[r] != 0.0 || greatest[r] != f32::NEG_INFINITY {
                self.greatest[r] = if greatest[r] > self.greatest[r] { greatest[r] } else { self.greatest[r] };
                self.sums[r] = self.sums[r] * kept[r] + sums[r] * added[r];
                factors[r] = Some([kept[r], added[r]]);
            }
        }
        factors
    }
}

/// Adds the values of one range to a row's output.
#[inline(always)]
fn add<I: Isa>(isa: I, [old, new]: [f32; 2], values: &[Vector], out: &mut [f32]) {
    let (whole, rest) = out.as_chunks_mut::<WIDE>();
    for (out, values) in whole.iter_mut().zip(values) {
        let kept = isa.mul(isa.wide_load(out), isa.splat(old));
        isa.wide_store(isa.fma(isa.wide_load(&values.0), isa.splat(new), kept), out);
    }
    for (out, values) in rest.as_chunks_mut::<LANES>().0.iter_mut().zip(&values[whole.len()..]) {
        let kept = isa.mul(isa.load(out), isa.splat(old));
        isa.store(isa.fma(isa.load(&values.0.as_chunks().0[0]), isa.splat(new), kept), out);
    }
}

//! Merges the partial results of the ranges into outputs.

use super::call::{Call, Chunk};
use crate::act::exp;
use crate::disjoint::Disjoint;
use crate::isa::{Isa, Kernel, LANES};

/// The outputs of one chunk. No other task writes them.
pub(super) struct Merge<'a> {
    pub(super) call: &'a Call<'a>,
    pub(super) chunk: &'a Chunk,
    pub(super) partials: &'a [f32],
    pub(super) out: &'a Disjoint<'a, f32>,
}

impl Kernel for Merge<'_> {
    type Output = ();

    #[inline(always)]
    fn run<I: Isa>(self, isa: I) {
        let (call, dim, length) = (self.call, self.call.head_dim, self.call.row_length());
        let per_range = call.partial_length(self.chunk);
        let ranges = &self.partials[self.chunk.start..][..per_range * self.chunk.ranges().len()];
        for row in 0..self.chunk.tokens.len() * call.group {
            // SAFETY: only this task writes the chunk's rows, one row at a time.
            let out = unsafe { self.out.slice(call.query_start(self.chunk, row), dim) };
            out.fill(0.0);
            let mut totals = Totals { greatest: f32::NEG_INFINITY, sum: 0.0 };
            for partials in ranges.chunks_exact(per_range) {
                totals.add(isa, &partials[row * length..][..length], out);
            }
            let sum = isa.splat(totals.sum);
            for lanes in out.as_chunks_mut::<LANES>().0 {
                isa.store(isa.div(isa.load(lanes), sum), lanes);
            }
        }
    }
}

/// The softmax state of one row after the merged ranges. The weighted values are in the output.
struct Totals {
    greatest: f32,
    sum: f32,
}

impl Totals {
    /// Adds the partial result of one range. A range in which the row attends to no position has no
    /// effect.
    #[inline(always)]
    fn add<I: Isa>(&mut self, isa: I, partial: &[f32], out: &mut [f32]) {
        let (values, rest) = partial.split_at(out.len());
        let (greatest, sum) = (rest[0], rest[1]);
        if sum == 0.0 && greatest == f32::NEG_INFINITY {
            return;
        }
        let both = if greatest > self.greatest { greatest } else { self.greatest };
        let [old, new] = factors(isa, [self.greatest - both, greatest - both]);
        self.greatest = both;
        self.sum = self.sum * old + sum * new;
        for (out, values) in out.as_chunks_mut::<LANES>().0.iter_mut().zip(values.as_chunks().0) {
            let kept = isa.mul(isa.load(out), isa.splat(old));
            isa.store(isa.fma(isa.load(values), isa.splat(new), kept), out);
        }
    }
}

/// Returns the exponentials of two numbers.
#[inline(always)]
fn factors<I: Isa>(isa: I, [old, new]: [f32; 2]) -> [f32; 2] {
    let mut lanes = [old, new, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0];
    isa.store(exp(isa, isa.load(&lanes)), &mut lanes);
    [lanes[0], lanes[1]]
}

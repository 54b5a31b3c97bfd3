//! Rows of activations, rounded to bf16. Weights of bf16 are multiplied by these, as in other
//! engines.

use std::sync::atomic::{AtomicU16, Ordering::Relaxed};

use crate::half::f32_to_bf16;
use crate::isa::{Isa, IsaLevel, Kernel, Pair, least_exponent};
use crate::pool::Team;

/// Rows of a group. The last rows are in groups of 8, 4, 2 and 1.
pub(crate) const GROUP: usize = 16;

/// Rows of an input as pairs of bf16, rounded to nearest, ties to even. If the number of columns is
/// odd, a zero follows the last one. Reused between calls, so that memory is allocated only if a
/// call needs more.
#[derive(Debug, Default)]
pub(crate) struct PairRows {
    /// Groups, each of them \[columns / 2\]\[rows of the group\]. A pair of columns of all rows is
    /// contiguous, so that a product reads one stream of memory.
    pairs: Vec<Pair>,
    /// The [`least_exponent`] of every sixteen rows.
    least_exponents: Vec<AtomicU16>,
    pairs_per_row: usize,
}

impl PairRows {
    /// Replaces the content by `x`, rounded: \[rows\]\[columns\].
    pub(crate) fn fill(&mut self, team: &Team, level: IsaLevel, x: &[f32], columns: usize) {
        let (rows, pairs) = (x.len() / columns, columns.div_ceil(2));
        self.pairs_per_row = pairs;
        self.pairs.resize(self.pairs.len().max(rows * pairs), Pair::default());
        self.least_exponents.resize_with(rows.div_ceil(GROUP), AtomicU16::default);
        let least_exponents = &self.least_exponents;
        team.run_on_chunks(&mut self.pairs[..rows * pairs], GROUP * pairs, &|index, out| {
            let x = &x[index * GROUP * columns..][..out.len() / pairs * columns];
            least_exponents[index].store(level.run(Round { x, columns, out }), Relaxed);
        });
    }

    /// Returns a group of `G` rows, of which `row` is the first: \[columns / 2\]\[rows\].
    #[inline(always)]
    pub(crate) fn group<const G: usize>(&self, row: usize) -> &[[Pair; G]] {
        &self.pairs[row * self.pairs_per_row..].as_chunks().0[..self.pairs_per_row]
    }

    /// Returns a number that is not above the [`least_exponent`] of a row.
    #[inline(always)]
    pub(crate) fn least_exponent(&self, row: usize) -> u16 {
        self.least_exponents[row / GROUP].load(Relaxed)
    }
}

/// Rounds at most sixteen rows, and returns their [`least_exponent`].
struct Round<'a> {
    x: &'a [f32],
    columns: usize,
    out: &'a mut [Pair],
}

impl Kernel for Round<'_> {
    type Output = u16;

    #[inline(always)]
    fn run<I: Isa>(self, _isa: I) -> u16 {
        let Self { mut x, columns, out } = self;
        let mut rest = &mut *out;
        write_group::<GROUP>(&mut x, columns, &mut rest);
        write_group::<8>(&mut x, columns, &mut rest);
        write_group::<4>(&mut x, columns, &mut rest);
        write_group::<2>(&mut x, columns, &mut rest);
        write_group::<1>(&mut x, columns, &mut rest);
        least_exponent(out.as_flattened().iter().copied())
    }
}

/// Takes `G` rows from `x`, if as many are left, and writes their group to the start of `out`.
#[inline(always)]
fn write_group<const G: usize>(x: &mut &[f32], columns: usize, out: &mut &mut [Pair]) {
    let Some(rows) = x.split_off(..G * columns) else { return };
    let Some(group) = out.split_off_mut(..G * columns.div_ceil(2)) else { return };
    for (row, x) in rows.chunks_exact(columns).enumerate() {
        write_row(x, row, group.as_chunks_mut::<G>().0);
    }
}

/// Writes one row of a group. Rounds some columns at a time, so that the compiler uses vectors.
#[inline(always)]
fn write_row<const G: usize>(x: &[f32], row: usize, out: &mut [[Pair; G]]) {
    const COLUMNS: usize = 32;
    let (runs, rest) = x.as_chunks::<COLUMNS>();
    let (out, out_rest) = out.split_at_mut(runs.len() * COLUMNS / 2);
    for (x, out) in runs.iter().zip(out.as_chunks_mut::<{ COLUMNS / 2 }>().0) {
        let mut rounded = [0; COLUMNS];
        for (rounded, x) in rounded.iter_mut().zip(x) {
            *rounded = f32_to_bf16(*x);
        }
        for (out, pair) in out.iter_mut().zip(rounded.as_chunks().0) {
            out[row] = *pair;
        }
    }
    for (out, x) in out_rest.iter_mut().zip(rest.chunks(2)) {
        out[row] = [f32_to_bf16(x[0]), x.get(1).map_or(0, |x| f32_to_bf16(*x))];
    }
}

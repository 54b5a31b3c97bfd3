//! Products of bf16 panels and rows rounded to bf16: one [`Pairs::add`] per pair of columns, in the
//! order of the columns.

use std::array::from_fn;
use std::ops::Range;

use super::prefetch::distance;
use super::sums::PanelSums;
use crate::buffer::CACHE_LINE_BYTES;
use crate::isa::{Arithmetic, Isa, LANES, Pair, PairKernel, Pairs, Sums, Wide, is_tame};
use crate::pack::Matrix;
use crate::rounded::{GROUP, PairRows};

/// The products of some panels and some tokens. The first token is the first of a group.
pub(super) struct PairProducts<'a> {
    pub(super) matrix: &'a Matrix,
    pub(super) panels: Range<usize>,
    pub(super) x: &'a PairRows,
    pub(super) tokens: Range<usize>,
    pub(super) out: &'a mut PanelSums,
}

/// Pairs of columns of a panel in a cache line.
const PER_LINE: usize = CACHE_LINE_BYTES / size_of::<[Pair; LANES]>();

impl PairKernel for PairProducts<'_> {
    #[inline(always)]
    fn run<P: Pairs>(mut self, pairs: P) {
        let mut panel = 0;
        while panel + 4 <= self.panels.len() {
            self.all_tokens::<P, 2>(pairs, panel);
            panel += 4;
        }
        while panel < self.panels.len() {
            self.all_tokens::<P, 1>(pairs, panel);
            panel += 2;
        }
    }
}

impl PairProducts<'_> {
    /// Computes `W` times two panels for all tokens. Without a last panel, the one before it is
    /// computed twice.
    #[inline(always)]
    fn all_tokens<P: Pairs, const W: usize>(&mut self, pairs: P, panel: usize) {
        let mut token = 0;
        while token + GROUP <= self.tokens.len() {
            // The sums of sixteen tokens leave registers for two panels only.
            for w in 0..W {
                self.group::<P, 1, GROUP>(pairs, panel + 2 * w, token);
            }
            token += GROUP;
        }
        self.next::<P, W, 8>(pairs, panel, &mut token);
        self.next::<P, W, 4>(pairs, panel, &mut token);
        self.next::<P, W, 2>(pairs, panel, &mut token);
        self.next::<P, W, 1>(pairs, panel, &mut token);
    }

    /// Computes a group of `G` tokens if as many are left, and adds them to `token`.
    #[inline(always)]
    fn next<P: Pairs, const W: usize, const G: usize>(&mut self, pairs: P, panel: usize, token: &mut usize) {
        if *token + G <= self.tokens.len() {
            self.group::<P, W, G>(pairs, panel, *token);
            *token += G;
        }
    }

    /// Computes `W` times two panels for a group of `G` tokens. With few registers, it computes four
    /// tokens and two panels at a time.
    #[inline(always)]
    fn group<P: Pairs, const W: usize, const G: usize>(&mut self, pairs: P, panel: usize, token: usize) {
        if G < 4 || <P::Isa as Wide>::REGISTERS > 16 {
            return self.tile::<P, W, G, G>(pairs, panel, token, 0);
        }
        for w in 0..W {
            for first in (0..G).step_by(4) {
                self.tile::<P, 1, G, 4>(pairs, panel + 2 * w, token, first);
            }
        }
    }

    /// Computes `W` times two panels for `T` tokens of a group of `G`, starting at its `first`.
    #[inline(always)]
    fn tile<P: Pairs, const W: usize, const G: usize, const T: usize>(
        &mut self,
        pairs: P,
        panel: usize,
        token: usize,
        first: usize,
    ) {
        let x = self.x.group::<G>(self.tokens.start + token);
        let indices: [[usize; 2]; W] = from_fn(|w| from_fn(|p| (panel + 2 * w + p).min(self.panels.len() - 1)));
        let panels = indices.map(|two| two.map(|index| &self.matrix.pairs(self.panels.start + index)[..x.len()]));
        let prefetch = G >= 8 && token + first == 0;
        if P::IS_NATIVE || self.is_tame(indices, token) {
            let sums = products::<P, W, G, T, true>(pairs, panels, x, first, prefetch);
            self.store(pairs, indices, token + first, sums);
        } else {
            let sums = products::<P, W, G, T, false>(pairs, panels, x, first, prefetch);
            self.store(pairs, indices, token + first, sums);
        }
    }

    /// Stores the sums of `T` tokens and of the panels with these indices.
    #[inline(always)]
    fn store<P: Pairs, const W: usize, const T: usize>(
        &mut self,
        pairs: P,
        indices: [[usize; 2]; W],
        token: usize,
        sums: [[Sums<P>; W]; T],
    ) {
        let isa = pairs.isa();
        for (t, sums) in sums.into_iter().enumerate() {
            for (sums, indices) in sums.into_iter().zip(indices) {
                for (sums, index) in isa.split(sums).into_iter().zip(indices) {
                    isa.store(sums, &mut self.out[index * self.tokens.len() + token + t]);
                }
            }
        }
    }

    /// Returns true if the numbers of these panels and of a token's group are [tame](is_tame).
    #[inline(always)]
    fn is_tame<const W: usize>(&self, indices: [[usize; 2]; W], token: usize) -> bool {
        let x = self.x.least_exponent(self.tokens.start + token);
        indices.as_flattened().iter().all(|index| is_tame(self.matrix.least_exponent(self.panels.start + index), x))
    }
}

/// Returns the sums of `T` tokens and `W` times sixteen rows. With `prefetch`, it prefetches weights:
/// for few tokens, the processor does so as well without it.
#[inline(always)]
fn products<P: Pairs, const W: usize, const G: usize, const T: usize, const TAME: bool>(
    pairs: P,
    panels: [[&[[Pair; LANES]]; 2]; W],
    x: &[[Pair; G]],
    first: usize,
    prefetch: bool,
) -> [[Sums<P>; W]; T] {
    let isa = pairs.isa();
    let zero: Sums<P> = isa.splat(0.0);
    let mut sums = [[zero; W]; T];
    for (column, factors) in x.iter().enumerate() {
        let columns = panels.map(|two| two.map(|panel| &panel[column]));
        if prefetch && column % PER_LINE == 0 {
            let distance = distance(2 * W, column / PER_LINE, x.len() / PER_LINE, CACHE_LINE_BYTES);
            for column in columns.as_flattened() {
                isa.prefetch(*column, distance);
            }
        }
        let mut weights = [pairs.weights(columns[0]); W];
        for w in 1..W {
            weights[w] = pairs.weights(columns[w]);
        }
        for t in 0..T {
            let x = pairs.splat(factors[first + t]);
            for w in 0..W {
                sums[t][w] =
                    if TAME { pairs.add_tame(sums[t][w], weights[w], x) } else { pairs.add(sums[t][w], weights[w], x) };
            }
        }
    }
    sums
}

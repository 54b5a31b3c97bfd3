//! Products of float panels and float rows: one fused multiply-add per column, in the order of the
//! columns.

use std::array::from_fn;
use std::marker::PhantomData;
use std::ops::Range;

use super::product::Input;
use super::sums::PanelSums;
use crate::element::Element;
use crate::isa::{Isa, Kernel, LANES};
use crate::pack::Matrix;

/// The products of some panels and some tokens.
pub(super) struct Floats<'a, E> {
    matrix: &'a Matrix,
    panels: Range<usize>,
    /// \[tokens\]\[columns\].
    x: &'a [f32],
    out: &'a mut PanelSums,
    element: PhantomData<E>,
}

impl<'a, E: Element> Floats<'a, E> {
    pub(super) fn new(
        matrix: &'a Matrix,
        panels: Range<usize>,
        input: &Input<'a>,
        tokens: Range<usize>,
        out: &'a mut PanelSums,
    ) -> Self {
        let x = &input.floats[tokens.start * input.columns..tokens.end * input.columns];
        Self { matrix, panels, x, out, element: PhantomData }
    }
}

impl<E: Element> Kernel for Floats<'_, E> {
    type Output = ();

    #[inline(always)]
    fn run<I: Isa>(mut self, isa: I) {
        if self.x.len() == self.matrix.columns() {
            return self.one_token(isa);
        }
        let mut panel = 0;
        while I::REGISTERS > 16 && panel + 4 <= self.panels.len() {
            self.many_tokens::<I, 2, 8>(isa, panel);
            panel += 4;
        }
        while panel + 2 <= self.panels.len() {
            self.many_tokens::<I, 1, 6>(isa, panel);
            panel += 2;
        }
        if panel < self.panels.len() {
            self.few_tokens::<I, 1>(isa, panel, 0);
        }
    }
}

impl<E: Element> Floats<'_, E> {
    /// Computes one token, four panels at a time, then the remaining panels one by one.
    #[inline(always)]
    fn one_token<I: Isa>(&mut self, isa: I) {
        let mut panel = 0;
        while panel + 4 <= self.panels.len() {
            self.tile::<I, 4, 1>(isa, panel, 0);
            panel += 4;
        }
        while panel < self.panels.len() {
            self.tile::<I, 1, 1>(isa, panel, 0);
            panel += 1;
        }
    }

    /// Computes `W` pairs of panels, `T` tokens at a time.
    #[inline(always)]
    fn many_tokens<I: Isa, const W: usize, const T: usize>(&mut self, isa: I, panel: usize) {
        let tokens = self.x.len() / self.matrix.columns();
        let mut token = 0;
        while token + T <= tokens {
            self.wide_tile::<I, W, T>(isa, panel, token);
            token += T;
        }
        for pair in 0..W {
            self.few_tokens::<I, 2>(isa, panel + 2 * pair, token);
        }
    }

    /// Computes `P` panels for the tokens from `token` on, two at a time, then one.
    #[inline(always)]
    fn few_tokens<I: Isa, const P: usize>(&mut self, isa: I, panel: usize, mut token: usize) {
        let tokens = self.x.len() / self.matrix.columns();
        while token + 2 <= tokens {
            self.tile::<I, P, 2>(isa, panel, token);
            token += 2;
        }
        if token < tokens {
            self.tile::<I, P, 1>(isa, panel, token);
        }
    }

    /// Computes `W` pairs of panels for `T` tokens.
    #[inline(always)]
    fn wide_tile<I: Isa, const W: usize, const T: usize>(&mut self, isa: I, panel: usize, token: usize) {
        let columns = self.matrix.columns();
        let part = |p: usize| &self.matrix.floats::<E::Stored>(self.panels.start + panel + p)[..columns];
        let pairs: [[_; 2]; W] = from_fn(|w| [part(2 * w), part(2 * w + 1)]);
        let x: [_; T] = from_fn(|t| &self.x[(token + t) * columns..][..columns]);
        let mut sums = [[isa.splat(0.0); W]; T];
        for column in 0..columns {
            let mut weights = [isa.splat(0.0); W];
            for (weights, [first, second]) in weights.iter_mut().zip(pairs) {
                *weights = isa.join(E::load(isa, &first[column]), E::load(isa, &second[column]));
            }
            for t in 0..T {
                let x = isa.splat(x[t][column]);
                for w in 0..W {
                    sums[t][w] = isa.fma(weights[w], x, sums[t][w]);
                }
            }
        }
        let tokens = self.x.len() / columns;
        for (t, sums) in sums.into_iter().enumerate() {
            for (w, sums) in sums.into_iter().enumerate() {
                for (p, sum) in isa.split(sums).into_iter().enumerate() {
                    isa.store(sum, &mut self.out[(panel + 2 * w + p) * tokens + token + t]);
                }
            }
        }
    }

    #[inline(always)]
    fn tile<I: Isa, const P: usize, const T: usize>(&mut self, isa: I, panel: usize, token: usize) {
        let columns = self.matrix.columns();
        let panels: [_; P] = from_fn(|p| self.matrix.floats::<E::Stored>(self.panels.start + panel + p));
        let x: [_; T] = from_fn(|t| &self.x[(token + t) * columns..][..columns]);
        let sums = products::<I, E, P, T>(isa, columns, panels, x);
        let tokens = self.x.len() / columns;
        for (p, sums) in sums.iter().enumerate() {
            for (t, sum) in sums.iter().enumerate() {
                isa.store(*sum, &mut self.out[(panel + p) * tokens + token + t]);
            }
        }
    }
}

#[inline(always)]
fn products<I: Isa, E: Element, const P: usize, const T: usize>(
    isa: I,
    columns: usize,
    panels: [&[[E::Stored; LANES]]; P],
    x: [&[f32]; T],
) -> [[I::F; T]; P] {
    let panels = panels.map(|panel| &panel[..columns]);
    let x = x.map(|x| &x[..columns]);
    let mut sums = [[isa.splat(0.0); T]; P];
    for column in 0..columns {
        let mut weights = [isa.splat(0.0); P];
        for (weights, panel) in weights.iter_mut().zip(panels) {
            *weights = E::load(isa, &panel[column]);
        }
        for t in 0..T {
            let x = isa.splat(x[t][column]);
            for p in 0..P {
                sums[p][t] = isa.fma(weights[p], x, sums[p][t]);
            }
        }
    }
    sums
}

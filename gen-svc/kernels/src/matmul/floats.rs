//! Panels of floats times rows of floats: one fused multiplication and addition per column, in the order of the columns.

use std::array::from_fn;
use std::marker::PhantomData;
use std::ops::Range;

use super::{Input, Tile};
use crate::element::Element;
use crate::isa::{Isa, LANES, Work};
use crate::pack::Matrix;

/// Some panels times some tokens.
pub(super) struct Floats<'a, E> {
    matrix: &'a Matrix,
    panels: Range<usize>,
    /// \[tokens\]\[columns\].
    x: &'a [f32],
    out: &'a mut Tile,
    element: PhantomData<E>,
}

impl<'a, E: Element> Floats<'a, E> {
    pub(super) fn new(
        matrix: &'a Matrix,
        panels: Range<usize>,
        input: &Input<'a>,
        tokens: Range<usize>,
        out: &'a mut Tile,
    ) -> Self {
        let x = &input.floats[tokens.start * input.columns..tokens.end * input.columns];
        Self { matrix, panels, x, out, element: PhantomData }
    }
}

impl<E: Element> Work for Floats<'_, E> {
    type Output = ();

    #[inline(always)]
    fn run<I: Isa>(mut self, isa: I) {
        if self.x.len() == self.matrix.columns() {
            return self.panels_in::<I, 4, 1>(isa);
        }
        self.panels_in::<I, 2, 6>(isa);
    }
}

impl<E: Element> Floats<'_, E> {
    /// By `P` panels while there are as many, then one by one.
    #[inline(always)]
    fn panels_in<I: Isa, const P: usize, const T: usize>(&mut self, isa: I) {
        let mut done = 0;
        while done + P <= self.panels.len() {
            self.tokens_in::<I, P, T>(isa, done);
            done += P;
        }
        while done < self.panels.len() {
            self.tokens_in::<I, 1, T>(isa, done);
            done += 1;
        }
    }

    /// By `T` tokens while there are as many, then by two, then one.
    #[inline(always)]
    fn tokens_in<I: Isa, const P: usize, const T: usize>(&mut self, isa: I, panel: usize) {
        let tokens = self.x.len() / self.matrix.columns();
        let mut done = 0;
        while done + T <= tokens {
            self.tile::<I, P, T>(isa, panel, done);
            done += T;
        }
        while done + 2 <= tokens {
            self.tile::<I, P, 2>(isa, panel, done);
            done += 2;
        }
        if done < tokens {
            self.tile::<I, P, 1>(isa, panel, done);
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

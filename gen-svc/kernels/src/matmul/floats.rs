//! Products of float panels and float rows: one fused multiply-add per column, in the order of the
//! columns.

use std::array::from_fn;
use std::marker::PhantomData;
use std::ops::Range;

use super::prefetch::distance;
use super::product::Input;
use super::sums::PanelSums;
use crate::buffer::CACHE_LINE_BYTES;
use crate::element::Element;
use crate::isa::{Isa, Kernel, LANES, WIDE};
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
        while panel + 4 <= self.panels.len() {
            self.pairs::<I, 2>(isa, panel);
            panel += 4;
        }
        while panel + 2 <= self.panels.len() {
            self.pairs::<I, 1>(isa, panel);
            panel += 2;
        }
        if panel < self.panels.len() {
            self.last_panel(isa, panel);
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

    /// Computes `W` pairs of panels for all tokens.
    ///
    /// The tile of the first eight tokens, or six with few registers, reads the weights from memory and
    /// prefetches them: all pairs at once for f32, else one pair at a time. Later tiles read them from
    /// the cache, where one pair at a time is faster.
    #[inline(always)]
    fn pairs<I: Isa, const W: usize>(&mut self, isa: I, panel: usize) {
        let tokens = self.x.len() / self.matrix.columns();
        let mut token = 0;
        if I::REGISTERS > 16 && tokens >= 8 {
            if size_of::<E::Stored>() == size_of::<f32>() {
                self.wide_tile::<I, W, 8, true>(isa, panel, 0);
            } else {
                self.each_pair::<I, W, 8, true>(isa, panel, 0);
            }
            token = 8;
            while token + 8 <= tokens {
                self.each_pair::<I, W, 8, false>(isa, panel, token);
                token += 8;
            }
        } else if I::REGISTERS <= 16 && tokens >= 6 {
            self.each_pair::<I, W, 6, true>(isa, panel, 0);
            token = 6;
            while token + 6 <= tokens {
                self.each_pair::<I, W, 6, false>(isa, panel, token);
                token += 6;
            }
        }
        self.few_tokens::<I, W>(isa, panel, token);
    }

    /// Computes `W` pairs of panels for the tokens from `token` on: fewer than eight.
    #[inline(always)]
    fn few_tokens<I: Isa, const W: usize>(&mut self, isa: I, panel: usize, mut token: usize) {
        let tokens = self.x.len() / self.matrix.columns();
        if I::REGISTERS > 16 {
            match tokens - token {
                7.. => return self.wide_tile::<I, W, 7, false>(isa, panel, token),
                6 => return self.wide_tile::<I, W, 6, false>(isa, panel, token),
                5 => return self.wide_tile::<I, W, 5, false>(isa, panel, token),
                4 => return self.wide_tile::<I, W, 4, false>(isa, panel, token),
                3 => return self.wide_tile::<I, W, 3, false>(isa, panel, token),
                _ => {}
            }
        } else if tokens - token >= 3 {
            self.each_pair::<I, W, 3, false>(isa, panel, token);
            token += 3;
        }
        match tokens - token {
            2.. => self.wide_tile::<I, W, 2, false>(isa, panel, token),
            1 => self.wide_tile::<I, W, 1, false>(isa, panel, token),
            0 => {}
        }
    }

    /// Computes `W` pairs of panels for `T` tokens, one pair after the other.
    #[inline(always)]
    fn each_pair<I: Isa, const W: usize, const T: usize, const PREFETCH: bool>(
        &mut self,
        isa: I,
        panel: usize,
        token: usize,
    ) {
        for pair in 0..W {
            self.wide_tile::<I, 1, T, PREFETCH>(isa, panel + 2 * pair, token);
        }
    }

    /// Computes a panel without a second one for all tokens.
    #[inline(always)]
    fn last_panel<I: Isa>(&mut self, isa: I, panel: usize) {
        let tokens = self.x.len() / self.matrix.columns();
        let mut token = 0;
        while token + 2 <= tokens {
            self.tile::<I, 1, 2>(isa, panel, token);
            token += 2;
        }
        if token < tokens {
            self.tile::<I, 1, 1>(isa, panel, token);
        }
    }

    /// Computes `W` pairs of panels for `T` tokens together. With `PREFETCH`, it prefetches weights.
    #[inline(always)]
    fn wide_tile<I: Isa, const W: usize, const T: usize, const PREFETCH: bool>(
        &mut self,
        isa: I,
        panel: usize,
        token: usize,
    ) {
        let columns = self.matrix.columns();
        let tokens = self.x.len() / columns;
        let matrix = self.matrix;
        let mut pairs: [[&[[E::Stored; LANES]]; 2]; W] = [[&[]; 2]; W];
        for w in 0..W {
            for p in 0..2 {
                pairs[w][p] = &matrix.floats::<E::Stored>(self.panels.start + panel + 2 * w + p)[..columns];
            }
        }
        let mut x: [&[f32]; T] = [&[]; T];
        for t in 0..T {
            x[t] = &self.x[(token + t) * columns..][..columns];
        }
        let per_line = CACHE_LINE_BYTES / size_of::<[E::Stored; LANES]>();
        let mut sums = [[isa.splat(0.0); W]; T];
        for column in 0..columns {
            if column % WIDE == 0 {
                // The next tokens.
                for t in 0..T {
                    isa.prefetch(&x[t][column..], T * columns * size_of::<f32>());
                }
            }
            if PREFETCH && column % per_line == 0 {
                let distance = distance(2 * W, column / per_line, columns / per_line, CACHE_LINE_BYTES);
                for w in 0..W {
                    for p in 0..2 {
                        isa.prefetch(&pairs[w][p][column..], distance);
                    }
                }
            }
            let mut weights = [isa.splat(0.0); W];
            for w in 0..W {
                weights[w] = isa.join(E::load(isa, &pairs[w][0][column]), E::load(isa, &pairs[w][1][column]));
            }
            for t in 0..T {
                let x = isa.splat(x[t][column]);
                for w in 0..W {
                    sums[t][w] = isa.fma(weights[w], x, sums[t][w]);
                }
            }
        }
        for t in 0..T {
            for w in 0..W {
                for (p, sum) in isa.split(sums[t][w]).into_iter().enumerate() {
                    isa.store(sum, &mut self.out[(panel + 2 * w + p) * tokens + token + t]);
                }
            }
        }
    }

    /// Computes `P` panels for `T` tokens.
    #[inline(always)]
    fn tile<I: Isa, const P: usize, const T: usize>(&mut self, isa: I, panel: usize, token: usize) {
        let columns = self.matrix.columns();
        let tokens = self.x.len() / columns;
        let panels: [_; P] = from_fn(|p| &self.matrix.floats::<E::Stored>(self.panels.start + panel + p)[..columns]);
        let x: [_; T] = from_fn(|t| &self.x[(token + t) * columns..][..columns]);
        let mut sums = [[isa.splat(0.0); T]; P];
        for column in 0..columns {
            let mut weights = [isa.splat(0.0); P];
            for p in 0..P {
                weights[p] = E::load(isa, &panels[p][column]);
            }
            for t in 0..T {
                let x = isa.splat(x[t][column]);
                for p in 0..P {
                    sums[p][t] = isa.fma(weights[p], x, sums[p][t]);
                }
            }
        }
        for p in 0..P {
            for t in 0..T {
                isa.store(sums[p][t], &mut self.out[(panel + p) * tokens + token + t]);
            }
        }
    }
}

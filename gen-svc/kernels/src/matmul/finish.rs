//! The epilogue: from sums of products to outputs, by bias, gate, scale and residual.

use std::ops::Range;

use super::product::{Epilogue, Linear, Projection};
use super::sums::PanelSums;
use crate::disjoint::Disjoint;
use crate::isa::{Arithmetic, Isa, Kernel, LANES, WIDE};

/// A product and its outputs.
pub(super) struct Outputs<'a> {
    pub(super) projection: Projection<'a>,
    pub(super) epilogue: Epilogue<'a>,
    /// \[tokens\]\[rows\]; a task writes only the rows of its panels.
    pub(super) out: Disjoint<'a, f32>,
    pub(super) rows: usize,
}

/// The outputs of some panels for some tokens. No other task writes them.
pub(super) struct Finish<'a> {
    pub(super) outputs: &'a Outputs<'a>,
    pub(super) panels: Range<usize>,
    pub(super) tokens: Range<usize>,
    /// Sums of the matrix or of the gate, then sums of the up projection:
    /// \[panels\]\[tokens\]\[lanes\].
    pub(super) tiles: [&'a PanelSums; 2],
}

impl Kernel for Finish<'_> {
    type Output = ();

    #[inline(always)]
    fn run<I: Isa>(mut self, isa: I) {
        let mut panel = 0;
        while panel < self.panels.len() {
            let row = LANES * (self.panels.start + panel);
            if panel + 2 <= self.panels.len() && row + WIDE <= self.outputs.rows {
                self.two_panels(isa, panel, row);
                panel += 2;
            } else {
                self.one_panel(isa, panel, row);
                panel += 1;
            }
        }
    }
}

impl Finish<'_> {
    /// Writes sixteen outputs of each token. `row` is the matrix row of the first output.
    #[inline(always)]
    fn two_panels<I: Isa>(&mut self, isa: I, panel: usize, row: usize) {
        let tokens = self.tokens.len();
        let [first, second] = [panel, panel + 1].map(|panel| self.tiles.map(|tile| &tile[panel * tokens..][..tokens]));
        let [bias, other] = [self.biases(isa, row), self.biases(isa, row + LANES)];
        let biases = [isa.join(bias[0], other[0]), isa.join(bias[1], other[1])];
        for (t, token) in self.tokens.clone().enumerate() {
            let sums = [
                isa.join(isa.load(&first[0][t]), isa.load(&second[0][t])),
                isa.join(isa.load(&first[1][t]), isa.load(&second[1][t])),
            ];
            let mut lanes = self.combined(isa, sums, biases);
            let (add, out) = self.target(token, row, WIDE);
            let out = &mut out.as_chunks_mut().0[0];
            if let Some(scale) = add {
                lanes = isa.add(isa.wide_load(out), isa.mul(lanes, isa.splat(scale)));
            }
            isa.wide_store(lanes, out);
        }
    }

    /// Writes up to eight outputs of each token.
    #[inline(always)]
    fn one_panel<I: Isa>(&mut self, isa: I, panel: usize, row: usize) {
        let biases = self.biases(isa, row);
        for (t, token) in self.tokens.clone().enumerate() {
            let [first, second] = self.tiles.map(|tile| &tile[panel * self.tokens.len() + t]);
            let mut lanes = self.combined(isa, [isa.load(first), isa.load(second)], biases);
            let (add, out) = self.target(token, row, LANES.min(self.outputs.rows - row));
            if let Some(scale) = add {
                lanes = isa.add(isa.load_part(out, 0.0), isa.mul(lanes, isa.splat(scale)));
            }
            isa.store_part(lanes, out);
        }
    }

    /// Returns the bias of eight rows: of the matrix or the gate, then of the up projection.
    #[inline(always)]
    fn biases<I: Isa>(&self, isa: I, row: usize) -> [I::F; 2] {
        match &self.outputs.projection {
            Projection::Linear(linear) => [bias(isa, linear, row), isa.splat(-0.0)],
            Projection::Gated { gate, up, .. } => [bias(isa, gate, row), bias(isa, up, row)],
        }
    }

    #[inline(always)]
    fn combined<V: Copy, A: Arithmetic<V>>(&self, isa: A, sums: [V; 2], biases: [V; 2]) -> V {
        let lanes = isa.add(sums[0], biases[0]);
        match &self.outputs.projection {
            Projection::Linear(_) => lanes,
            Projection::Gated { activation, .. } => isa.mul(activation.apply(isa, lanes), isa.add(sums[1], biases[1])),
        }
    }

    /// Returns the factor of a token's outputs if they are added, and their slice, starting at
    /// `row`.
    #[inline(always)]
    fn target(&mut self, token: usize, row: usize, length: usize) -> (Option<f32>, &mut [f32]) {
        let (add, target) = match &self.outputs.epilogue {
            Epilogue::Store => (None, token),
            Epilogue::Add { scale } => (Some(*scale), token),
            Epilogue::Scatter { rows, scales } => (Some(scales[token]), rows[token] as usize),
        };
        // SAFETY: no other task writes these panels, and this task holds no other slice of the
        // output.
        (add, unsafe { self.outputs.out.slice(target * self.outputs.rows + row, length) })
    }
}

/// Returns eight biases. Without a bias they are negative zeros, which change no sum.
#[inline(always)]
fn bias<I: Isa>(isa: I, linear: &Linear<'_>, row: usize) -> I::F {
    match linear.bias {
        Some(bias) => isa.load_part(&bias[row..], 0.0),
        None => isa.splat(-0.0),
    }
}

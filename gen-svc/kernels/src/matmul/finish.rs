//! From sums of products to outputs: bias, gate, scale, residual.

use std::ops::Range;

use super::{After, Job, Layer, Linear, Tile};
use crate::isa::{Isa, LANES, Work};

/// The outputs of some panels for some tokens, which no other task writes.
pub(super) struct Finish<'a> {
    pub(super) job: &'a Job<'a>,
    pub(super) panels: Range<usize>,
    pub(super) tokens: Range<usize>,
    /// Products of the matrix, or the gate, and of the values that are gated: \[panels\]\[tokens\]\[lanes\].
    pub(super) tiles: [&'a Tile; 2],
}

impl Work for Finish<'_> {
    type Output = ();

    #[inline(always)]
    fn run<I: Isa>(self, isa: I) {
        let (tokens, rows) = (self.tokens.len(), self.job.rows);
        for (i, panel) in self.panels.enumerate() {
            let row = LANES * panel;
            for (t, token) in self.tokens.clone().enumerate() {
                let [first, second] = self.tiles.map(|tile| isa.load(&tile[i * tokens + t]));
                let lanes = combined(isa, &self.job.layer, row, first, second);
                let (target, add) = target(&self.job.after, token);
                // SAFETY: no other task has this panel, and this task has no other part of the output now.
                let out = unsafe { self.job.out.slice(target * rows + row, LANES.min(rows - row)) };
                put(isa, add, lanes, out);
            }
        }
    }
}

/// Up to eight outputs of one token. `row` is the first one's row of the matrix.
#[inline(always)]
fn combined<I: Isa>(isa: I, layer: &Layer<'_>, row: usize, first: I::F, second: I::F) -> I::F {
    match layer {
        Layer::Linear(linear) => biased(isa, linear, row, first),
        Layer::Gated { gate, up, activation } => {
            isa.mul(activation.apply(isa, biased(isa, gate, row, first)), biased(isa, up, row, second))
        }
    }
}

#[inline(always)]
fn biased<I: Isa>(isa: I, linear: &Linear<'_>, row: usize, lanes: I::F) -> I::F {
    match linear.bias {
        Some(bias) => isa.add(lanes, isa.load_part(&bias[row..], 0.0)),
        None => lanes,
    }
}

/// The output's row for a token, and what the token's outputs are multiplied by if they are added.
#[inline(always)]
fn target(after: &After<'_>, token: usize) -> (usize, Option<f32>) {
    match after {
        After::Store => (token, None),
        After::Add { scale } => (token, Some(*scale)),
        After::Scatter { rows, scales } => (rows[token] as usize, Some(scales[token])),
    }
}

#[inline(always)]
fn put<I: Isa>(isa: I, add: Option<f32>, lanes: I::F, out: &mut [f32]) {
    let lanes = match add {
        None => lanes,
        Some(scale) => isa.add(isa.load_part(out, 0.0), isa.mul(lanes, isa.splat(scale))),
    };
    isa.store_part(lanes, out);
}

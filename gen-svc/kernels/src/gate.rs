//! Gates: sigmoids of projections, and the decay and update rate of linear attention.

use crate::act::{exp, sigmoid, silu, softplus};
use crate::clock::Part;
use crate::disjoint::Disjoint;
use crate::error::{Error, expect, expect_multiple};
use crate::isa::{Isa, Kernel, LANES};
use crate::kernels::Kernels;
use crate::norm::{Norm, normalize};

/// Numbers of a task: each needs an exponential. For fewer numbers, waking another thread takes longer
/// than the computation.
const TASK_NUMBERS: usize = 2 << 10;

/// The inputs of the gates of a linear attention layer. T tokens, Hv value heads.
#[derive(Debug, Clone, Copy)]
pub struct Gates<'a> {
    /// \[T\]\[Hv\].
    pub a: &'a [f32],
    /// \[T\]\[Hv\].
    pub b: &'a [f32],
    /// \[Hv\]: exp(A_log), not negative.
    pub rate: &'a [f32],
    /// \[Hv\]: `dt_bias`.
    pub bias: &'a [f32],
}

impl Kernels {
    /// Replaces each number by its sigmoid.
    pub fn sigmoid(&self, x: &mut [f32]) {
        let _running = self.time(Part::Attention);
        self.team.run_on_chunks(x, TASK_NUMBERS, &|_, x| self.level.run(Sigmoids { x }));
    }

    /// Multiplies each number of `x` by the sigmoid of the number of `gate` at the same place.
    pub fn gate(&self, x: &mut [f32], gate: &[f32]) -> Result<(), Error> {
        let _running = self.time(Part::Attention);
        expect("gate", x.len(), gate.len())?;
        self.team.run_on_chunks(x, TASK_NUMBERS, &|task, x| {
            self.level.run(Gate { gate: &gate[task * TASK_NUMBERS..][..x.len()], x });
        });
        Ok(())
    }

    /// Normalizes each row of `x`, \[rows\]\[columns\], in place, and multiplies it by silu(z). `z` has the
    /// shape of `x`.
    pub fn norm_gated(&self, x: &mut [f32], norm: Norm<'_>, z: &[f32]) -> Result<(), Error> {
        let _running = self.time(Part::Norms);
        let columns = norm.weight.len();
        expect_multiple("weights of a norm", 1, columns)?;
        expect_multiple("rows to normalize", columns, x.len())?;
        expect("gate", x.len(), z.len())?;
        let length = (TASK_NUMBERS / columns).max(1) * columns;
        self.team.run_on_chunks(x, length, &|task, x| {
            self.level.run(NormGated { z: &z[task * length..][..x.len()], norm, x });
        });
        Ok(())
    }

    /// Computes `decay` = exp(-rate * softplus(a + bias)) and `beta` = sigmoid(b), both \[T\]\[Hv\].
    pub fn gates(&self, gates: Gates<'_>, decay: &mut [f32], beta: &mut [f32]) -> Result<(), Error> {
        let _running = self.time(Part::Recurrence);
        let heads = gates.rate.len();
        expect_multiple("rates", 1, heads)?;
        expect("biases of rates", heads, gates.bias.len())?;
        expect_multiple("inputs of decays", heads, gates.a.len())?;
        expect("inputs of update rates", gates.a.len(), gates.b.len())?;
        expect("decays", gates.a.len(), decay.len())?;
        expect("update rates", gates.a.len(), beta.len())?;
        let length = (TASK_NUMBERS / 2 / heads).max(1) * heads;
        let beta = Disjoint::new(beta);
        self.team.run_on_chunks(decay, length, &|task, decay| {
            let range = task * length..task * length + decay.len();
            let gates = Gates { a: &gates.a[range.clone()], b: &gates.b[range.clone()], ..gates };
            // SAFETY: the parts are those of `decay`, which do not overlap.
            let beta = unsafe { beta.slice(range.start, range.len()) };
            self.level.run(ComputeGates { gates, decay, beta });
        });
        Ok(())
    }
}

struct Sigmoids<'a> {
    x: &'a mut [f32],
}

impl Kernel for Sigmoids<'_> {
    type Output = ();

    #[inline(always)]
    fn run<I: Isa>(self, isa: I) {
        for x in self.x.chunks_mut(LANES) {
            isa.store_part(sigmoid(isa, isa.load_part(x, 0.0)), x);
        }
    }
}

struct Gate<'a> {
    x: &'a mut [f32],
    gate: &'a [f32],
}

impl Kernel for Gate<'_> {
    type Output = ();

    #[inline(always)]
    fn run<I: Isa>(self, isa: I) {
        for (x, gate) in self.x.chunks_mut(LANES).zip(self.gate.chunks(LANES)) {
            let factor = sigmoid(isa, isa.load_part(gate, 0.0));
            isa.store_part(isa.mul(isa.load_part(x, 0.0), factor), x);
        }
    }
}

struct NormGated<'a> {
    x: &'a mut [f32],
    norm: Norm<'a>,
    z: &'a [f32],
}

impl Kernel for NormGated<'_> {
    type Output = ();

    #[inline(always)]
    fn run<I: Isa>(self, isa: I) {
        let columns = self.norm.weight.len();
        for (x, z) in self.x.chunks_exact_mut(columns).zip(self.z.chunks_exact(columns)) {
            normalize(isa, x, &self.norm);
            for (x, z) in x.chunks_mut(LANES).zip(z.chunks(LANES)) {
                let factor = silu(isa, isa.load_part(z, 0.0));
                isa.store_part(isa.mul(isa.load_part(x, 0.0), factor), x);
            }
        }
    }
}

/// Whole rows of heads.
struct ComputeGates<'a> {
    gates: Gates<'a>,
    decay: &'a mut [f32],
    beta: &'a mut [f32],
}

impl Kernel for ComputeGates<'_> {
    type Output = ();

    #[inline(always)]
    fn run<I: Isa>(self, isa: I) {
        let Gates { a, b, rate, bias } = self.gates;
        for (b, beta) in b.chunks(LANES).zip(self.beta.chunks_mut(LANES)) {
            isa.store_part(sigmoid(isa, isa.load_part(b, 0.0)), beta);
        }
        for (a, decay) in a.chunks_exact(rate.len()).zip(self.decay.chunks_exact_mut(rate.len())) {
            let heads = rate.chunks(LANES).zip(bias.chunks(LANES));
            for ((a, decay), (rate, bias)) in a.chunks(LANES).zip(decay.chunks_mut(LANES)).zip(heads) {
                let step = softplus(isa, isa.add(isa.load_part(a, 0.0), isa.load_part(bias, 0.0)));
                let rate = isa.sub(isa.splat(0.0), isa.load_part(rate, 0.0));
                isa.store_part(exp(isa, isa.mul(rate, step)), decay);
            }
        }
    }
}

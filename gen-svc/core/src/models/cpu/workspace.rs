//! The state of a step, and the products that layers compute with it.

use tandem_kernels::{
    Angles, Epilogue, Input, Int8Rows, Kernels, KvRun, KvStore, Linear as Factor, Product, Projection, Scratch,
};

use super::buffers::Buffers;
use super::parts::{Linear, RmsNorm};
use crate::error::StepError;

/// The kernels and buffers of steps. Only keys and values are kept between steps.
#[derive(Debug)]
pub(super) struct Workspace {
    pub(super) kernels: Kernels,
    /// `None` until it is allocated.
    pub(super) kv: Option<KvStore>,
    /// The angles of each rotary embedding at the positions of the step.
    pub(super) angles: Vec<Angles>,
    pub(super) integers: Int8Rows,
    pub(super) scratch: Scratch,
    pub(super) buffers: Buffers,
}

/// The tokens of a step.
#[derive(Debug, Clone, Copy)]
pub(super) struct Tokens<'a> {
    pub(super) runs: &'a [KvRun<'a>],
    /// `[T]`: the end of the positions that each token attends to in layers with image blocks.
    /// `None`: the step has no image.
    pub(super) ends: Option<&'a [usize]>,
}

/// The end of a layer's branch: an optional norm, and the scale with which the branch is added to
/// the residual stream.
#[derive(Debug, Clone, Copy)]
pub(super) struct Branch<'a> {
    pub(super) norm: Option<&'a RmsNorm>,
    pub(super) scale: f32,
}

impl Workspace {
    /// Multiplies one input with each matrix, `[T, in] -> [T, out]`.
    pub(super) fn multiply(
        &mut self,
        x: &[f32],
        linears: &[&Linear],
        outs: &mut [&mut [f32]],
    ) -> Result<(), StepError> {
        let factors: Vec<Factor<'_>> = linears.iter().map(|linear| linear.kernel()).collect();
        self.multiply_by(x, &factors, outs)
    }

    /// Does the same as [`Self::multiply`].
    pub(super) fn multiply_by(
        &mut self,
        x: &[f32],
        factors: &[Factor<'_>],
        outs: &mut [&mut [f32]],
    ) -> Result<(), StepError> {
        let columns = factors.first().map_or(1, |factor| factor.matrix.columns());
        let pairs = factors.iter().zip(outs.iter_mut());
        let mut products: Vec<Product<'_>> = pairs
            .map(|(factor, out)| Product { projection: Projection::Linear(*factor), epilogue: Epilogue::Store, out })
            .collect();
        self.compute(x, columns, &mut products)
    }

    /// Computes products of one input. Quantizes the input if a matrix requires it.
    pub(super) fn compute(&mut self, x: &[f32], columns: usize, products: &mut [Product<'_>]) -> Result<(), StepError> {
        let needs_integers = products.iter().any(|product| match product.projection {
            Projection::Linear(factor) => factor.matrix.format().needs_integers(),
            Projection::Gated { gate, up, .. } => {
                [gate, up].iter().any(|factor| factor.matrix.format().needs_integers())
            }
        });
        if needs_integers {
            self.kernels.quantize(x, columns, &mut self.integers)?;
        }
        let integers = needs_integers.then_some(&self.integers);
        Ok(self.kernels.multiply(Input { floats: x, columns, integers }, products)?)
    }

    /// Adds the product of `rows`, `[T, in]`, to the residual stream, `[T, E]`.
    pub(super) fn add(
        &mut self,
        rows: &[f32],
        linear: &Linear,
        branch: Branch<'_>,
        x: &mut [f32],
    ) -> Result<(), StepError> {
        let columns = linear.matrix.columns();
        let projection = Projection::Linear(linear.kernel());
        let Some(norm) = branch.norm else {
            let epilogue = Epilogue::Add { scale: branch.scale };
            return self.compute(rows, columns, &mut [Product { projection, epilogue, out: x }]);
        };
        let mut out = self.buffers.take(x.len());
        self.compute(rows, columns, &mut [Product { projection, epilogue: Epilogue::Store, out: &mut out }])?;
        self.kernels.add_norm(&out, norm.kernel(), branch.scale, x)?;
        self.buffers.give(out);
        Ok(())
    }
}

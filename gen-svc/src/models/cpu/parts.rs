//! What layers are made of: norms, and products of matrices.

use tandem_kernels::{Epilogue, Input, Kernels, Layer, Linear as Factor, Matrix, Norm, Product};

use super::{Branch, Step};
use crate::error::Error;

/// Root-mean-square normalization.
#[derive(Debug)]
pub(super) struct RmsNorm {
    pub(super) weight: Vec<f32>,
    pub(super) epsilon: f32,
    pub(super) offset: f32,
}

impl RmsNorm {
    pub(super) fn kernel(&self) -> Norm<'_> {
        Norm { weight: &self.weight, epsilon: self.epsilon, offset: self.offset }
    }

    /// `[T, E] -> [T, E]`
    pub(super) fn forward(&self, x: &[f32], kernels: &Kernels) -> Result<Vec<f32>, Error> {
        let mut normal = vec![0.0; x.len()];
        kernels.norm(x, self.kernel(), &mut normal)?;
        Ok(normal)
    }
}

/// A matrix and its bias.
#[derive(Debug)]
pub(super) struct Linear {
    pub(super) matrix: Matrix,
    pub(super) bias: Option<Vec<f32>>,
}

impl Linear {
    pub(super) fn kernel(&self) -> Factor<'_> {
        Factor { matrix: &self.matrix, bias: self.bias.as_deref() }
    }
}

impl Step {
    /// Each matrix's product with the same input, `[T, in] -> [T, out]`.
    pub(super) fn multiply(&mut self, x: &[f32], linears: &[&Linear], outs: &mut [&mut [f32]]) -> Result<(), Error> {
        let factors: Vec<Factor<'_>> = linears.iter().map(|linear| linear.kernel()).collect();
        self.multiply_by(x, &factors, outs)
    }

    /// As [`Self::multiply`].
    pub(super) fn multiply_by(
        &mut self,
        x: &[f32],
        factors: &[Factor<'_>],
        outs: &mut [&mut [f32]],
    ) -> Result<(), Error> {
        let columns = factors.first().map_or(1, |factor| factor.matrix.columns());
        let pairs = factors.iter().zip(outs.iter_mut());
        let mut products: Vec<Product<'_>> = pairs
            .map(|(factor, out)| Product { layer: Layer::Linear(*factor), epilogue: Epilogue::Store, out })
            .collect();
        self.compute(x, columns, &mut products)
    }

    /// Computes products of one input, which is quantized if one of the matrices needs that.
    pub(super) fn compute(&mut self, x: &[f32], columns: usize, products: &mut [Product<'_>]) -> Result<(), Error> {
        let needs_integers = products.iter().any(|product| match product.layer {
            Layer::Linear(factor) => factor.matrix.format().needs_integers(),
            Layer::Gated { gate, up, .. } => [gate, up].iter().any(|factor| factor.matrix.format().needs_integers()),
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
    ) -> Result<(), Error> {
        let columns = linear.matrix.columns();
        let layer = Layer::Linear(linear.kernel());
        let Some(norm) = branch.norm else {
            let epilogue = Epilogue::Add { scale: branch.scale };
            return self.compute(rows, columns, &mut [Product { layer, epilogue, out: x }]);
        };
        let mut out = vec![0.0; x.len()];
        self.compute(rows, columns, &mut [Product { layer, epilogue: Epilogue::Store, out: &mut out }])?;
        Ok(self.kernels.add_norm(&out, norm.kernel(), branch.scale, x)?)
    }
}

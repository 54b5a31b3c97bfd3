//! The inputs of single layers.
//!
//! Shapes: T tokens of a call, E hidden size, P size of a layer's input.

use tandem_core::models::decoder::{self, Activation};
use tch::Tensor;

use super::layers::{Linear, RmsNorm, activate, scaled};
use super::load::Loader;
use crate::error::Error;

/// The inputs of all layers.
#[derive(Debug)]
pub(super) struct LayerInputs {
    description: decoder::LayerInputs,
    /// `[rows, layers * P]`
    table: Tensor,
    projection: Linear,
    norm: RmsNorm,
}

impl LayerInputs {
    pub(super) fn load(inputs: &decoder::LayerInputs, loader: &Loader<'_>) -> Result<Self, Error> {
        Ok(Self {
            table: loader.weight(&inputs.table)?,
            projection: Linear::load(loader, std::slice::from_ref(&inputs.projection))?,
            norm: RmsNorm::load(loader, &inputs.norm)?,
            description: inputs.clone(),
        })
    }

    /// Computes the inputs of tokens with the embeddings `x`: `[T], [T, E] -> [T, layers, P]`
    pub(super) fn forward(&self, ids: &Tensor, x: &Tensor) -> Result<Tensor, Error> {
        let decoder::LayerInputs { size, table_scale, projection_scale, scale, .. } = self.description;
        let of_token = Tensor::f_embedding(&self.table, ids, -1, false, false)?.f_mul_scalar(f64::from(table_scale))?;
        let projected = self.projection.forward(x)?.f_mul_scalar(f64::from(projection_scale))?;
        let normal = self.norm.forward(&projected.f_view([ids.size1()?, -1, size as i64])?)?;
        scaled(normal.f_add(&of_token.f_view_as(&normal)?)?, f64::from(scale))
    }
}

/// The branch of a layer's own input.
#[derive(Debug)]
pub(super) struct InputBranch {
    gate: Linear,
    activation: Activation,
    output: Linear,
    norm: RmsNorm,
}

impl InputBranch {
    pub(super) fn load(branch: &decoder::InputBranch, loader: &Loader<'_>) -> Result<Self, Error> {
        let linear = |matrix| Linear::load(loader, std::slice::from_ref(matrix));
        Ok(Self {
            gate: linear(&branch.gate)?,
            activation: branch.activation,
            output: linear(&branch.output)?,
            norm: RmsNorm::load(loader, &branch.norm)?,
        })
    }

    /// `[T, E], [T, P] -> [T, E]`
    pub(super) fn forward(&self, x: &Tensor, input: &Tensor) -> Result<Tensor, Error> {
        let gate = activate(&self.gate.forward(x)?, self.activation)?;
        self.norm.forward(&self.output.forward(&gate.f_mul(input)?)?)
    }
}

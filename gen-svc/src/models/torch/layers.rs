//! The parts that layers are made of.
//!
//! Shapes: T tokens of a call, E hidden size, D head size.

use tch::{Kind, Tensor};

use super::load::Loader;
use crate::error::Error;
use crate::models::decoder::{self, Activation, Matrix, Norm};
use crate::weights::TorchTarget;

/// A matrix product, with or without bias.
#[derive(Debug)]
pub(super) struct Linear {
    weight: Tensor,
    bias: Option<Tensor>,
}

impl Linear {
    /// Stacks matrices with the same input into one matrix. Their outputs are adjacent.
    pub(super) fn load(loader: &Loader<'_>, parts: &[Matrix]) -> Result<Self, Error> {
        let stack = |load: &dyn Fn(&Matrix) -> Result<Tensor, Error>| match parts {
            [part] => load(part),
            parts => Ok(Tensor::f_cat(&parts.iter().map(load).collect::<Result<Vec<_>, _>>()?, 0)?),
        };
        let biased = parts.iter().any(|part| part.bias);
        Ok(Self {
            weight: stack(&|part| loader.weight(part))?,
            bias: biased.then(|| stack(&|part| loader.bias(part))).transpose()?,
        })
    }

    /// Returns the head that shares the embedding table.
    pub(super) fn tied(table: &Tensor) -> Self {
        Self { weight: table.shallow_clone(), bias: None }
    }

    /// `[T, in] -> [T, out]`
    pub(super) fn forward(&self, x: &Tensor) -> Result<Tensor, Error> {
        Ok(x.f_linear(&self.weight, self.bias.as_ref())?)
    }
}

/// Root-mean-square normalization.
#[derive(Debug)]
pub(super) struct RmsNorm {
    weight: Tensor,
    size: i64,
    epsilon: f64,
}

impl RmsNorm {
    pub(super) fn load(loader: &Loader<'_>, norm: &Norm) -> Result<Self, Error> {
        let weight = loader.vector(&format!("{}.weight", norm.name), norm.size)?;
        let weight = weight.f_add_scalar(f64::from(norm.offset))?;
        let TorchTarget { device, dtype } = loader.target();
        Ok(Self {
            weight: weight.f_to_device(device)?.f_to_kind(dtype)?,
            size: norm.size as i64,
            epsilon: f64::from(norm.epsilon),
        })
    }

    /// `[.., E] -> [.., E]`
    pub(super) fn forward(&self, x: &Tensor) -> Result<Tensor, Error> {
        Ok(x.f_rms_norm([self.size], Some(&self.weight), self.epsilon)?)
    }
}

/// Rotary position embedding.
#[derive(Debug)]
pub(super) struct Rope {
    /// `[2n]`, the n frequencies twice.
    frequencies: Tensor,
    /// `[2n]`, the axis of each frequency.
    axes: Tensor,
    /// `[2n]`, minus the scale for the first half, the scale for the second.
    signs: Tensor,
    half: i64,
    scale: f64,
    dtype: Kind,
}

impl Rope {
    pub(super) fn new(rope: &decoder::Rope, target: TorchTarget) -> Result<Self, Error> {
        let half = rope.frequencies.len();
        let signs = [vec![-rope.scale; half], vec![rope.scale; half]].concat();
        let axes = rope.axes.clone().unwrap_or_else(|| vec![0; half]).repeat(2);
        let axes: Vec<i64> = axes.into_iter().map(|axis| axis as i64).collect();
        Ok(Self {
            frequencies: Tensor::f_from_slice(&rope.frequencies.repeat(2))?.f_to_device(target.device)?,
            axes: Tensor::f_from_slice(&axes)?.f_to_device(target.device)?,
            signs: Tensor::f_from_slice(&signs)?.f_to_device(target.device)?,
            half: half as i64,
            scale: f64::from(rope.scale),
            dtype: target.dtype,
        })
    }

    /// Returns the rotation at `positions`, `[T, 3]`.
    pub(super) fn at(&self, positions: &Tensor) -> Result<Rotation, Error> {
        let positions = positions.f_index_select(1, &self.axes)?; // [T, 2n]
        let angles = positions.f_mul(&self.frequencies)?.f_unsqueeze(1)?; // [T, 1, 2n]
        Ok(Rotation {
            cos: angles.f_cos()?.f_mul_scalar(self.scale)?.f_to_kind(self.dtype)?,
            sin: angles.f_sin()?.f_mul(&self.signs)?.f_to_kind(self.dtype)?,
            half: self.half,
        })
    }
}

/// The rotation of some positions, shared by all layers.
#[derive(Debug)]
pub(super) struct Rotation {
    cos: Tensor,
    sin: Tensor,
    half: i64,
}

impl Rotation {
    /// Rotates the first 2n numbers of each head: `[T, heads, D] -> [T, heads, D]`
    pub(super) fn apply(&self, x: &Tensor) -> Result<Tensor, Error> {
        let (_, _, size) = x.size3()?;
        let rotary_dim = 2 * self.half;
        if rotary_dim == size {
            return self.rotate(x);
        }
        let rest = x.f_narrow(2, rotary_dim, size - rotary_dim)?;
        Ok(Tensor::f_cat(&[self.rotate(&x.f_narrow(2, 0, rotary_dim)?)?, rest], 2)?)
    }

    fn rotate(&self, x: &Tensor) -> Result<Tensor, Error> {
        let swapped = x.f_roll([self.half], [-1])?;
        Ok(x.f_mul(&self.cos)?.f_add(&swapped.f_mul(&self.sin)?)?)
    }
}

/// Multiplies, unless the factor is 1.
pub(super) fn scaled(x: Tensor, scale: f64) -> Result<Tensor, Error> {
    if scale == 1.0 { Ok(x) } else { Ok(x.f_mul_scalar(scale)?) }
}

/// Computes the activation of a gate.
pub(super) fn activate(gate: &Tensor, activation: Activation) -> Result<Tensor, Error> {
    Ok(match activation {
        Activation::Silu => gate.f_silu()?,
        Activation::GeluTanh => gate.f_gelu("tanh")?,
    })
}

/// Bounds numbers smoothly: `cap * tanh(x / cap)`.
pub(super) fn softcap(x: Tensor, cap: Option<f32>) -> Result<Tensor, Error> {
    match cap.map(f64::from) {
        None => Ok(x),
        Some(cap) => Ok(x.f_div_scalar(cap)?.f_tanh()?.f_mul_scalar(cap)?),
    }
}

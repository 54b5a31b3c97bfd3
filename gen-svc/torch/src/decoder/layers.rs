//! The parts that layers are made of.
//!
//! Shapes: T tokens of a call, E hidden size, D head size.

use tandem_core::models::decoder::{self, Activation, Matrix, Norm};
use tch::{Kind, Tensor};

use super::load::Loader;
use super::packed::Weight;
use super::rows::ProductRows;
use crate::error::Error;
use crate::target::{TorchTarget, WeightBits};

/// A matrix product, with or without bias.
#[derive(Debug)]
pub(super) struct Linear {
    weight: Weight,
    bias: Option<Tensor>,
    rows: ProductRows,
}

impl Linear {
    /// Stacks matrices with the same input into one matrix. Their outputs are adjacent.
    pub(super) fn load(loader: &Loader<'_>, parts: &[Matrix]) -> Result<Self, Error> {
        Self::load_in(loader, parts, loader.target().bits)
    }

    /// Loads the head. It affects the output most, so it has at least 8 bits.
    pub(super) fn head(loader: &Loader<'_>, head: &Matrix) -> Result<Self, Error> {
        let bits = match loader.target().bits {
            WeightBits::Int4 => WeightBits::Int8,
            bits => bits,
        };
        Self::load_in(loader, std::slice::from_ref(head), bits)
    }

    /// Loads a matrix in the dtype.
    pub(super) fn unpacked(loader: &Loader<'_>, matrix: &Matrix) -> Result<Self, Error> {
        Self::load_in(loader, std::slice::from_ref(matrix), WeightBits::Full)
    }

    fn load_in(loader: &Loader<'_>, parts: &[Matrix], bits: WeightBits) -> Result<Self, Error> {
        let biased = parts.iter().any(|part| part.bias);
        let bias = biased.then(|| loader.biases(parts)).transpose()?;
        let rows = ProductRows::of(loader.target());
        Ok(Self { weight: Weight::pack(loader.stacked(parts)?, bits)?, bias, rows })
    }

    /// Returns the head that shares the embedding table.
    pub(super) fn tied(table: Tensor, target: TorchTarget) -> Self {
        Self { weight: Weight::Full(table), bias: None, rows: ProductRows::of(target) }
    }

    /// `[T, in] -> [T, out]`
    pub(super) fn forward(&self, x: &Tensor) -> Result<Tensor, Error> {
        self.rows.compute(x, |x| self.weight.product(x, self.bias.as_ref()))
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
        let TorchTarget { device, dtype, .. } = loader.target();
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

/// Root-mean-square normalization of heads. Queries and keys have different weights.
#[derive(Debug)]
pub(super) struct HeadNorms {
    /// `[heads, D]`
    weight: Tensor,
    size: i64,
    epsilon: f64,
}

impl HeadNorms {
    /// Loads the norms of adjacent heads, given with the number of heads. All have the same epsilon.
    /// `None`: there are none.
    pub(super) fn load(norms: &[(&Norm, usize)], loader: &Loader<'_>) -> Result<Option<Self>, Error> {
        let Some((first, _)) = norms.first() else { return Ok(None) };
        let weight = |&(norm, heads): &(&Norm, usize)| {
            let RmsNorm { weight, size, .. } = RmsNorm::load(loader, norm)?;
            Ok(weight.f_unsqueeze(0)?.f_expand([heads as i64, size], false)?)
        };
        let weights: Vec<Tensor> = norms.iter().map(weight).collect::<Result<_, Error>>()?;
        let (size, epsilon) = (first.size as i64, f64::from(first.epsilon));
        Ok(Some(Self { weight: Tensor::f_cat(&weights, 0)?, size, epsilon }))
    }

    /// `[T, heads, D] -> [T, heads, D]`
    pub(super) fn forward(&self, x: &Tensor) -> Result<Tensor, Error> {
        Ok(x.f_rms_norm([self.size], None::<&Tensor>, self.epsilon)?.f_mul(&self.weight)?)
    }
}

/// Rotary position embedding.
#[derive(Debug)]
pub(super) struct Rope {
    /// `[n]`, or `[2, n]`: those of long sequences too.
    frequencies: Tensor,
    /// `[n]`, the axis of each frequency.
    axes: Tensor,
    scale: f64,
    /// D.
    size: i64,
    dtype: Kind,
}

impl Rope {
    /// Creates the rotation of heads of D = `size` numbers.
    pub(super) fn new(rope: &decoder::Rope, size: usize, target: TorchTarget) -> Result<Self, Error> {
        let axes = rope.axes.clone().unwrap_or_else(|| vec![0; rope.frequencies.len()]);
        let axes: Vec<i64> = axes.into_iter().map(|axis| axis as i64).collect();
        Ok(Self {
            frequencies: frequencies(rope)?.f_to_device(target.device)?,
            axes: Tensor::f_from_slice(&axes)?.f_to_device(target.device)?,
            scale: f64::from(rope.scale),
            size: size as i64,
            dtype: target.dtype,
        })
    }

    /// Returns the rotation at `positions`, `[T, 3]`. `long`: `[T]`, 1 for a token of a long sequence. `None`: there
    /// is none.
    pub(super) fn at(&self, positions: &Tensor, long: Option<&Tensor>) -> Result<Rotation, Error> {
        let positions = positions.f_index_select(1, &self.axes)?; // [T, n]
        let frequencies = match (self.frequencies.dim(), long) {
            (1, _) => self.frequencies.shallow_clone(),
            (_, None) => self.frequencies.f_select(0, 0)?,
            (_, Some(long)) => self.frequencies.f_index_select(0, long)?, // [T, n]
        };
        let angles = positions.f_mul(&frequencies)?.f_unsqueeze(1)?; // [T, 1, n]
        let cos = scaled(angles.f_cos()?, self.scale)?.f_to_kind(self.dtype)?;
        let sin = scaled(angles.f_sin()?, self.scale)?.f_to_kind(self.dtype)?;
        let (tokens, _, half) = cos.size3()?;
        let rest = Tensor::f_ones([tokens, 1, self.size - 2 * half], (self.dtype, cos.device()))?;
        Ok(Rotation { cos: Tensor::f_cat(&[&cos, &cos, &rest], 2)?, minus_sin: sin.f_neg()?, sin, half })
    }
}

/// Returns `[n]`, or `[2, n]` with those of long sequences.
fn frequencies(rope: &decoder::Rope) -> Result<Tensor, Error> {
    let short = Tensor::f_from_slice(&rope.frequencies)?;
    match &rope.long {
        None => Ok(short),
        Some(long) => Ok(Tensor::f_stack(&[&short, &Tensor::f_from_slice(&long.frequencies)?], 0)?),
    }
}

/// The rotation of some positions, shared by all layers.
#[derive(Debug)]
pub(super) struct Rotation {
    /// `[T, 1, D]`: twice n cosines, and ones for the numbers that are not rotated.
    cos: Tensor,
    /// `[T, 1, n]`
    minus_sin: Tensor,
    /// `[T, 1, n]`
    sin: Tensor,
    /// n.
    half: i64,
}

impl Rotation {
    /// Rotates the first 2n numbers of each head: `[T, heads, D] -> [T, heads, D]`
    pub(super) fn apply(&self, x: &Tensor) -> Result<Tensor, Error> {
        let rotated = x.f_mul(&self.cos)?;
        let half = |x: &Tensor, i: i64| x.f_narrow(2, i * self.half, self.half);
        drop(half(&rotated, 0)?.f_addcmul_(&half(x, 1)?, &self.minus_sin)?);
        drop(half(&rotated, 1)?.f_addcmul_(&half(x, 0)?, &self.sin)?);
        Ok(rotated)
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

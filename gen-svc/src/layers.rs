//! The parts that architectures are made of.
//!
//! Shapes: T tokens of a call, L of one run in it, S of that run's sequence so far, E hidden size, H query heads, K key/value heads,
//! G = H / K query heads to each of those, D head size.

use tch::{Device, Kind, Tensor};

use crate::error::Error;
use crate::weights::Weights;

/// A matrix product without bias.
#[derive(Debug)]
pub struct Linear {
    weight: Tensor,
}

impl Linear {
    /// Takes the matrix `name`, `[out, in]`.
    ///
    /// # Errors
    /// As [`Weights::tensor`].
    pub fn load(weights: &Weights<'_>, name: &str, out_in: [i64; 2]) -> Result<Self, Error> {
        Ok(Self { weight: weights.tensor(&format!("{name}.weight"), &out_in)? })
    }

    /// Stacks matrices that share their input, so that one product serves them all. Their outputs lie side by side.
    ///
    /// # Errors
    /// As [`Weights::tensor`].
    pub fn stacked(weights: &Weights<'_>, parts: &[(&str, i64)], inputs: i64) -> Result<Self, Error> {
        let load = |(name, outputs): &(&str, i64)| weights.tensor(&format!("{name}.weight"), &[*outputs, inputs]);
        let parts = parts.iter().map(load).collect::<Result<Vec<_>, _>>()?;
        Ok(Self { weight: Tensor::f_cat(&parts, 0)? })
    }

    /// The same matrix as an embedding table, for a tied head.
    #[must_use]
    pub fn tied(table: &Tensor) -> Self {
        Self { weight: table.shallow_clone() }
    }

    /// `[T, in] -> [T, out]`
    ///
    /// # Errors
    /// libtorch's.
    pub fn forward(&self, x: &Tensor) -> Result<Tensor, Error> {
        Ok(x.f_linear(&self.weight, None::<&Tensor>)?)
    }
}

/// Root-mean-square normalization.
#[derive(Debug)]
pub struct RmsNorm {
    weight: Tensor,
    size: i64,
    epsilon: f64,
}

impl RmsNorm {
    /// Takes the vector `name`.
    ///
    /// # Errors
    /// As [`Weights::tensor`].
    pub fn load(weights: &Weights<'_>, name: &str, size: i64, epsilon: f64) -> Result<Self, Error> {
        Ok(Self { weight: weights.tensor(&format!("{name}.weight"), &[size])?, size, epsilon })
    }

    /// `[.., E] -> [.., E]`
    ///
    /// # Errors
    /// libtorch's.
    pub fn forward(&self, x: &Tensor) -> Result<Tensor, Error> {
        Ok(x.f_rms_norm([self.size], Some(&self.weight), self.epsilon)?)
    }
}

/// Rotary position embedding over halves: element i of a head turns together with element i + D/2.
#[derive(Debug)]
pub struct Rope {
    /// `[D]`, the D/2 frequencies twice.
    frequencies: Tensor,
    /// `[D]`, -1 for the first half and 1 for the second.
    signs: Tensor,
    half: i64,
    dtype: Kind,
}

impl Rope {
    /// For heads of `size`, with frequencies falling from 1 to 1 / `theta`.
    ///
    /// # Errors
    /// libtorch's.
    pub fn new(size: i64, theta: f64, dtype: Kind, device: Device) -> Result<Self, Error> {
        let half = size / 2;
        let exponents = Tensor::f_arange(half, (Kind::Float, device))?.f_mul_scalar(2.0)?.f_div_scalar(size)?;
        let frequencies = Tensor::f_pow_scalar(theta, &exponents)?.f_reciprocal()?;
        let ones = Tensor::f_ones([half], (Kind::Float, device))?;
        Ok(Self {
            frequencies: Tensor::f_cat(&[&frequencies, &frequencies], 0)?,
            signs: Tensor::f_cat(&[&ones.f_neg()?, &ones], 0)?,
            half,
            dtype,
        })
    }

    /// The rotation at `positions`, `[T]`.
    ///
    /// # Errors
    /// libtorch's.
    pub fn at(&self, positions: &Tensor) -> Result<Rotation, Error> {
        let angles = positions.f_outer(&self.frequencies)?.f_unsqueeze(1)?; // [T, 1, D]
        Ok(Rotation {
            cos: angles.f_cos()?.f_to_kind(self.dtype)?,
            sin: angles.f_sin()?.f_mul(&self.signs)?.f_to_kind(self.dtype)?,
            half: self.half,
        })
    }
}

/// The rotation of some positions, shared by all layers.
#[derive(Debug)]
pub struct Rotation {
    cos: Tensor,
    sin: Tensor,
    half: i64,
}

impl Rotation {
    /// `[T, heads, D] -> [T, heads, D]`
    ///
    /// # Errors
    /// libtorch's.
    pub fn apply(&self, x: &Tensor) -> Result<Tensor, Error> {
        let swapped = x.f_roll([self.half], [-1])?;
        Ok(x.f_mul(&self.cos)?.f_add(&swapped.f_mul(&self.sin)?)?)
    }
}

/// Who may look at whom among the L tokens of a run that follow `past` others.
#[derive(Debug)]
pub enum Causality {
    /// One token, which sees everything: no mask.
    One,
    /// The sequence's first tokens: the kernel masks by itself.
    First,
    /// Later tokens: `[L, S]`, minus infinity where a token must not look.
    Later(Tensor),
}

impl Causality {
    /// For `length` tokens after `past` others.
    ///
    /// # Errors
    /// libtorch's.
    pub fn new(past: i64, length: i64, dtype: Kind, device: Device) -> Result<Self, Error> {
        Ok(match (past, length) {
            (_, 1) => Self::One,
            (0, _) => Self::First,
            _ => {
                let hidden = Tensor::f_full([length, past + length], f64::NEG_INFINITY, (dtype, device))?;
                Self::Later(hidden.f_triu(past + 1)?)
            }
        })
    }

    /// Grouped-query attention: `q [L, H, D], k and v [K, S, D] -> [L, H * D]`
    ///
    /// # Errors
    /// libtorch's.
    pub fn attend(&self, q: &Tensor, k: &Tensor, v: &Tensor) -> Result<Tensor, Error> {
        let (length, heads, size) = q.size3()?;
        let (groups, positions, _) = k.size3()?;
        if matches!(self, Self::One) {
            // The G heads of a group are the query rows of one product with its keys.
            let q = q.f_view([1, groups, heads / groups, size])?;
            let attended = sdpa(&q, &k.f_unsqueeze(0)?, &v.f_unsqueeze(0)?, None, false)?;
            return Ok(attended.f_reshape([1, heads * size])?);
        }
        let q = q.f_view([length, groups, heads / groups, size])?.f_permute([1, 2, 0, 3])?; // [K, G, L, D]
        let shared = |x: &Tensor| x.f_unsqueeze(1)?.f_expand([groups, heads / groups, positions, size], false);
        let mask = if let Self::Later(mask) = self { Some(mask) } else { None };
        let attended = sdpa(&q, &shared(k)?, &shared(v)?, mask, mask.is_none())?; // [K, G, L, D]
        Ok(attended.f_permute([2, 0, 1, 3])?.f_reshape([length, heads * size])?)
    }
}

fn sdpa(q: &Tensor, k: &Tensor, v: &Tensor, mask: Option<&Tensor>, causal: bool) -> Result<Tensor, Error> {
    Ok(Tensor::f_scaled_dot_product_attention(q, k, v, mask, 0.0, causal, None, false)?)
}

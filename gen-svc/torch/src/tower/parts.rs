//! Matrices and norms of a tower.

use tandem_core::models::vision::tower::{self, Activation, LIMITS, NormKind};
use tch::Tensor;

use crate::decoder::load::Loader;
use crate::error::Error;

/// A matrix product, with or without bias and limits.
#[derive(Debug)]
pub(super) struct Linear {
    /// `[out, in]`
    weight: Tensor,
    bias: Option<Tensor>,
    /// The least and the largest input, the least and the largest output.
    limits: Option<[Tensor; 4]>,
}

impl Linear {
    pub(super) fn load(loader: &Loader<'_>, linear: &tower::Linear) -> Result<Self, Error> {
        if linear.is_transposed {
            let weight = loader.tensor(&linear.name, &[linear.columns, linear.rows])?.f_tr()?.f_contiguous()?;
            return Self::with(loader, linear, weight);
        }
        let weight = loader.tensor(&format!("{}.weight", linear.name), &[linear.rows, linear.columns])?;
        Self::with(loader, linear, weight)
    }

    /// Loads the embedding of patches. Frames with a tensor each follow each channel's first frame.
    pub(super) fn load_patches(loader: &Loader<'_>, patches: &tower::Patches) -> Result<Self, Error> {
        let tower::Patches { matrix, shape, frames, .. } = patches;
        let first = loader.tensor(&format!("{}.weight", matrix.name), shape)?;
        let weight = if frames.is_empty() {
            first
        } else {
            let others = frames.iter().map(|name| loader.tensor(name, shape));
            let all = [Ok(first)].into_iter().chain(others).collect::<Result<Vec<_>, _>>()?;
            Tensor::f_stack(&all, 2)?
        };
        Self::with(loader, matrix, weight.f_reshape([matrix.rows as i64, matrix.columns as i64])?)
    }

    fn with(loader: &Loader<'_>, linear: &tower::Linear, weight: Tensor) -> Result<Self, Error> {
        let bias = linear.bias.then(|| loader.tensor(&format!("{}.bias", linear.name), &[linear.rows]));
        let limits = linear.limits.as_ref().map(|path| {
            let [a, b, c, d] = LIMITS.map(|name| loader.tensor(&format!("{path}.{name}"), &[]));
            Ok::<_, Error>([a?, b?, c?, d?])
        });
        Ok(Self { weight, bias: bias.transpose()?, limits: limits.transpose()? })
    }

    /// `[.., in] -> [.., out]`
    pub(super) fn forward(&self, x: &Tensor) -> Result<Tensor, Error> {
        match &self.limits {
            None => Ok(x.f_linear(&self.weight, self.bias.as_ref())?),
            Some([least_in, most_in, least_out, most_out]) => {
                let x = x.f_clamp_tensor(Some(least_in), Some(most_in))?;
                let y = x.f_linear(&self.weight, self.bias.as_ref())?;
                Ok(y.f_clamp_tensor(Some(least_out), Some(most_out))?)
            }
        }
    }
}

/// A norm over the last dimension.
#[derive(Debug)]
pub(super) struct Norm {
    kind: NormKind,
    weight: Option<Tensor>,
    bias: Option<Tensor>,
    size: i64,
    epsilon: f64,
}

impl Norm {
    pub(super) fn load(loader: &Loader<'_>, norm: &tower::Norm) -> Result<Self, Error> {
        let vector = |part: &str| {
            let name = norm.name.as_ref().map(|name| format!("{name}.{part}"));
            name.map(|name| loader.tensor(&name, &[norm.size])).transpose()
        };
        let weight = match norm.kind {
            NormKind::Rms { offset } if offset != 0.0 => {
                vector("weight")?.map(|weight| weight.f_add_scalar(offset)).transpose()?
            }
            _ => vector("weight")?,
        };
        let bias = if norm.kind == NormKind::Layer { vector("bias")? } else { None };
        Ok(Self { kind: norm.kind, weight, bias, size: norm.size as i64, epsilon: norm.epsilon })
    }

    pub(super) fn forward(&self, x: &Tensor) -> Result<Tensor, Error> {
        if self.kind == NormKind::Layer {
            let (weight, bias) = (self.weight.as_ref(), self.bias.as_ref());
            return Ok(x.f_layer_norm([self.size], weight, bias, self.epsilon, false)?);
        }
        let mean = x.f_square()?.f_mean_dim(-1, true, None::<tch::Kind>)?;
        let normal = x.f_mul(&mean.f_add_scalar(self.epsilon)?.f_rsqrt()?)?;
        Ok(self.weight.as_ref().map_or(Ok(normal.shallow_clone()), |weight| normal.f_mul(weight))?)
    }
}

/// Applies an activation to each number.
pub(super) fn activated(activation: Activation, x: &Tensor) -> Result<Tensor, Error> {
    Ok(match activation {
        Activation::Silu => x.f_silu()?,
        Activation::Gelu => x.f_gelu("none")?,
        Activation::GeluTanh => x.f_gelu("tanh")?,
        Activation::QuickGelu => x.f_mul(&x.f_mul_scalar(1.702)?.f_sigmoid()?)?,
    })
}

//! The parts of layers: norms and matrices.

use tandem_kernels::{Activation, Kernels, Linear as Factor, Matrix, Norm};

use super::buffers::{Buffer, Buffers};
use crate::error::StepError;
use crate::models::decoder;

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
    pub(super) fn forward(&self, x: &[f32], kernels: &Kernels, buffers: &mut Buffers) -> Result<Buffer, StepError> {
        let mut normal = buffers.take(x.len());
        kernels.norm(x, self.kernel(), &mut normal)?;
        Ok(normal)
    }
}

impl From<decoder::Activation> for Activation {
    fn from(activation: decoder::Activation) -> Self {
        match activation {
            decoder::Activation::Silu => Self::Silu,
            decoder::Activation::GeluTanh => Self::GeluTanh,
        }
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

    /// Returns the bytes of the matrix in memory.
    pub(super) fn bytes(&self) -> usize {
        self.matrix.bytes()
    }
}

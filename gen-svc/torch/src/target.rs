//! The device and the numbers of a libtorch model.

use tch::{Device, Kind};

/// The device and the dtype of a libtorch model.
#[derive(Debug, Clone, Copy)]
pub struct TorchTarget {
    /// The device of all tensors.
    pub device: Device,
    /// The dtype of activations, and of the weights unless they have fewer bits.
    pub dtype: Kind,
    /// The size of the numbers of a layer's matrices.
    pub bits: WeightBits,
    /// True if the results of a token must not depend on the other sequences of its step, as far as libtorch
    /// allows.
    pub batch_invariant: bool,
    /// True if the products of experts are separate on every device. Otherwise they are on GPUs for which
    /// libtorch has no kernel for all experts.
    pub separate_experts: bool,
}

/// The size of the numbers of matrices.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WeightBits {
    /// That of the dtype.
    Full,
    /// 8 bits, with a scale for every row.
    Int8,
    /// 4 bits, with a scale and an offset for every 32.
    Int4,
}

impl TorchTarget {
    /// The CPU, in 32-bit floats.
    pub const REFERENCE: Self = Self {
        device: Device::Cpu,
        dtype: Kind::Float,
        bits: WeightBits::Full,
        batch_invariant: false,
        separate_experts: false,
    };
}

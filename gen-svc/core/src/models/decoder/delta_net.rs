//! Gated DeltaNet: linear attention whose keys and values are kept in one state. Reference:
//! transformers, `models/qwen3_5/modeling_qwen3_5.py`, and the paper arXiv:2412.06464.
//!
//! For each token and each value head, with the state S, `[Dk, Dv]`, which is zeros before the first
//! token:
//!
//! ```text
//! q, k, v = split(activation(convolution(inputs)))
//! q = q / sqrt(sum(q²) + 1e-6) / sqrt(Dk),  k = k / sqrt(sum(k²) + 1e-6)
//! S = S * exp(-rate * softplus(a + bias))
//! S = S + k (v - S^T k)^T * sigmoid(b)
//! y = norm(S^T q) * silu(z)
//! ```
//!
//! Shapes: E hidden size, G key heads, N value heads, Dk key size, Dv value size, K taps of the
//! convolution, C = 2 G Dk + N Dv its channels.

use std::ops::Range;

use super::parts::{Activation, Matrix, Norm, RequiredTensor};

/// A layer's gated DeltaNet.
#[derive(Debug, Clone)]
pub struct DeltaNet {
    /// G.
    pub key_heads: usize,
    /// N, a multiple of G.
    pub value_heads: usize,
    /// Dk.
    pub key_size: usize,
    /// Dv.
    pub value_size: usize,
    /// The key head of each value head.
    pub pairing: KeyHeads,
    /// The matrices of the inputs, which are, in this order: q `[G * Dk]`, k `[G * Dk]`, v `[N * Dv]`,
    /// z `[N * Dv]`, b `[N]`, a `[N]`.
    pub inputs: Vec<Grouped>,
    /// The convolution of q, k and v.
    pub convolution: Convolution,
    /// The decay of the states.
    pub decay: Decay,
    /// The norm of each value head's output over its Dv numbers.
    pub norm: Norm,
    /// `[E, N * Dv]`
    pub output: Matrix,
}

/// The key head of value head h, if there are r value heads per key head.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum KeyHeads {
    /// h / r.
    Adjacent,
    /// h % G. llama.cpp's files have this order.
    Strided,
}

/// A matrix whose rows are several inputs, side by side in groups.
#[derive(Debug, Clone)]
pub struct Grouped {
    /// `[groups * (sizes[0] + sizes[1] + ...), E]`
    pub matrix: Matrix,
    /// The number of groups.
    pub groups: usize,
    /// The rows of each input in a group.
    pub sizes: Vec<usize>,
}

/// An input: the rows of a matrix that compute it.
#[derive(Debug, Clone)]
pub struct RowsOf<'a> {
    /// The matrix.
    pub matrix: &'a Matrix,
    /// The rows, in the order of the input.
    pub ranges: Vec<Range<usize>>,
}

/// A causal convolution of each channel: `y[t] = sum over j of weight[j] * x[t - K + 1 + j]`. Numbers
/// before the first token are zeros.
#[derive(Debug, Clone)]
pub struct Convolution {
    /// The module's name. Its weights are `name.weight`.
    pub name: String,
    /// C.
    pub channels: usize,
    /// K.
    pub taps: usize,
    /// The activation of the sum.
    pub activation: Activation,
    /// True if the weights are `[C, K]`, false if `[C, 1, K]`.
    pub is_flat: bool,
}

/// The numbers of the decay `exp(-rate * softplus(a + bias))`.
#[derive(Debug, Clone)]
pub struct Decay {
    /// N.
    pub heads: usize,
    /// The name of a tensor `[N]`: the logarithm of the rate, or the negated rate.
    pub rate: String,
    /// True if the tensor is the negated rate. llama.cpp's files have it.
    pub is_negated: bool,
    /// The name of a tensor `[N]`.
    pub bias: String,
}

impl Grouped {
    /// Returns the inputs in the order of `sizes`.
    pub fn parts(&self) -> impl Iterator<Item = RowsOf<'_>> {
        let group: usize = self.sizes.iter().sum();
        let starts = self.sizes.iter().scan(0, |start, size| {
            *start += size;
            Some((*start - size, *size))
        });
        starts.map(move |(start, size)| {
            let ranges = (0..self.groups).map(|i| i * group + start..i * group + start + size).collect();
            RowsOf { matrix: &self.matrix, ranges }
        })
    }
}

impl Convolution {
    /// Returns the shape of the weights.
    #[must_use]
    pub fn shape(&self) -> Vec<usize> {
        if self.is_flat { vec![self.channels, self.taps] } else { vec![self.channels, 1, self.taps] }
    }
}

impl DeltaNet {
    /// Returns every required tensor.
    pub(super) fn tensors(&self) -> impl Iterator<Item = RequiredTensor> {
        let inputs = self.inputs.iter().flat_map(|input| input.matrix.tensors());
        let weights = (format!("{}.weight", self.convolution.name), self.convolution.shape());
        let decay = [&self.decay.rate, &self.decay.bias].map(|name| (name.clone(), vec![self.decay.heads]));
        inputs.chain([weights]).chain(decay).chain(self.norm.tensors()).chain(self.output.tensors())
    }
}

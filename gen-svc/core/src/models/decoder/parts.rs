//! The parts of layers: matrices, norms, activations, and the tensors that they require.

/// `x / sqrt(mean(x²) + epsilon) * (weight + offset)`, over `size` numbers.
#[derive(Debug, Clone)]
pub struct Norm {
    /// The module's name. Its vector is `name.weight`.
    pub name: String,
    /// The length of the vector.
    pub size: usize,
    /// Keeps the root above zero.
    pub epsilon: f32,
    /// The number that is added to the weight.
    pub offset: f32,
}

/// `x W^T`, or `x W^T + b`.
#[derive(Debug, Clone)]
pub struct Matrix {
    /// The module's name. Its matrix is `name.weight`, `[rows, columns]`.
    pub name: String,
    /// The number of outputs.
    pub rows: usize,
    /// The number of inputs.
    pub columns: usize,
    /// True if there is a `name.bias`, `[rows]`.
    pub bias: bool,
}

/// The activation of a gate.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Activation {
    /// `x * sigmoid(x)`
    Silu,
    /// `0.5 * x * (1 + tanh(sqrt(2/π) * (x + 0.044715 x³)))`
    GeluTanh,
}

/// The name and the shape of a required tensor.
pub type RequiredTensor = (String, Vec<usize>);

impl Matrix {
    /// Creates a matrix without bias.
    #[must_use]
    pub fn new(name: String, rows: usize, columns: usize) -> Self {
        Self { name, rows, columns, bias: false }
    }

    /// Returns the number of parameters.
    #[must_use]
    pub fn parameter_count(&self) -> u64 {
        count(self.tensors())
    }

    pub(super) fn tensors(&self) -> impl Iterator<Item = RequiredTensor> {
        let bias = self.bias.then(|| (format!("{}.bias", self.name), vec![self.rows]));
        std::iter::once((format!("{}.weight", self.name), vec![self.rows, self.columns])).chain(bias)
    }
}

impl Norm {
    pub(super) fn tensors(&self) -> impl Iterator<Item = RequiredTensor> {
        std::iter::once((format!("{}.weight", self.name), vec![self.size]))
    }
}

/// Returns the number of parameters in tensors.
pub(super) fn count(tensors: impl Iterator<Item = RequiredTensor>) -> u64 {
    tensors.map(|(_, shape)| shape.iter().product::<usize>() as u64).sum()
}

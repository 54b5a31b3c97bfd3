//! Loads stored tensors into libtorch.

use tandem_model_files::gguf::GgmlType;
use tch::{Kind, Tensor};

use crate::error::Error;
use crate::models::decoder::Matrix;
use crate::weights::{ModelFile, RowOrder, Stored, TorchTarget};

/// Reads a model's tensors, in its dtype and onto its device.
#[derive(Debug, Clone, Copy)]
pub(in crate::models) struct Loader<'a> {
    file: &'a ModelFile,
    target: TorchTarget,
}

impl<'a> Loader<'a> {
    pub(in crate::models) fn new(file: &'a ModelFile, target: TorchTarget) -> Self {
        Self { file, target }
    }

    /// Returns a matrix without its bias.
    pub(in crate::models) fn weight(&self, matrix: &Matrix) -> Result<Tensor, Error> {
        self.tensor(&format!("{}.weight", matrix.name), &[matrix.rows, matrix.columns])
    }

    /// Returns a matrix's bias; zeros if it has none.
    pub(in crate::models) fn bias(&self, matrix: &Matrix) -> Result<Tensor, Error> {
        if matrix.bias {
            return self.tensor(&format!("{}.bias", matrix.name), &[matrix.rows]);
        }
        Ok(Tensor::f_zeros([matrix.rows as i64], (self.target.dtype, self.target.device))?)
    }

    /// Returns a tensor of exactly this shape, in the model's dtype.
    pub(in crate::models) fn tensor(&self, name: &str, shape: &[usize]) -> Result<Tensor, Error> {
        let tensor = read(&self.file.tensor(name, shape)?)?;
        Ok(tensor.f_to_device(self.target.device)?.f_to_kind(self.target.dtype)?)
    }

    /// Returns a vector of exactly this length in f32, still on the CPU.
    pub(in crate::models) fn vector(&self, name: &str, length: usize) -> Result<Tensor, Error> {
        Ok(Tensor::f_from_slice(&self.file.tensor(name, &[length])?.to_f32()?)?)
    }

    pub(in crate::models) fn target(&self) -> TorchTarget {
        self.target
    }
}

/// Reads a tensor on the CPU, in its kind or in f32.
fn read(stored: &Stored<'_>) -> Result<Tensor, Error> {
    let shape: Vec<i64> = stored.shape.iter().map(|&dim| dim as i64).collect();
    match (kind(stored.dtype), stored.order) {
        (Some(kind), RowOrder::AsIs) => Ok(Tensor::f_from_data_size(&stored.to_bytes()?, &shape, kind)?),
        _ => Ok(Tensor::f_from_slice(&stored.to_f32()?)?.f_view(shape.as_slice())?),
    }
}

/// Returns the kind of a type, if libtorch has it.
fn kind(dtype: GgmlType) -> Option<Kind> {
    match dtype {
        GgmlType::F32 => Some(Kind::Float),
        GgmlType::F16 => Some(Kind::Half),
        GgmlType::BF16 => Some(Kind::BFloat16),
        _ => None,
    }
}

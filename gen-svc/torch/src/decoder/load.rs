//! Loads stored tensors into libtorch.
//!
//! A tensor is read and copied in pieces, so that the host holds little of it: for a GPU, in pinned
//! memory, from which some pieces are copied while the next one is read.

use std::ops::Range;

use tandem_core::heap;
use tandem_core::models::decoder::Matrix;
use tandem_core::weights::{ModelFile, Stored};
use tandem_model_files::gguf::GgmlType;
use tch::{Device, Kind, Tensor};

use crate::device::in_flight::InFlight;
use crate::error::Error;
use crate::target::TorchTarget;

/// The size of a piece, as 32-bit floats.
const PIECE_BYTES: usize = 32 << 20;

/// The bytes of a tensor whose buffers return to the system.
const LARGE_BYTES: usize = 1 << 20;

/// Reads a model's tensors, in its dtype and onto its device.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Loader<'a> {
    file: &'a ModelFile,
    target: TorchTarget,
    /// The pieces that are copied.
    in_flight: &'a InFlight,
}

impl<'a> Loader<'a> {
    pub(crate) fn new(file: &'a ModelFile, target: TorchTarget, in_flight: &'a InFlight) -> Self {
        Self { file, target, in_flight }
    }

    /// Returns a matrix without its bias, `[rows, columns]`.
    pub(crate) fn weight(&self, matrix: &Matrix) -> Result<Tensor, Error> {
        self.stacked(std::slice::from_ref(matrix))
    }

    /// Returns matrices with the same input as one matrix, without their biases. Their rows are adjacent.
    pub(crate) fn stacked(&self, parts: &[Matrix]) -> Result<Tensor, Error> {
        let stacked = self.empty(&stacked_shape(parts))?;
        self.fill(&stacked, parts)?;
        Ok(stacked)
    }

    /// Returns one stack of matrices for each of `groups`, which have equal shapes: `[groups, rows, columns]`
    pub(crate) fn groups(&self, groups: &[Vec<Matrix>]) -> Result<Tensor, Error> {
        let shape = groups.first().map_or([0, 0], |parts| stacked_shape(parts));
        let all = self.empty(&[groups.len(), shape[0], shape[1]])?;
        for (i, parts) in groups.iter().enumerate() {
            self.fill(&all.f_select(0, i as i64)?, parts)?;
        }
        Ok(all)
    }

    /// Returns the biases of matrices, one after the other. A matrix without a bias gives zeros.
    pub(crate) fn biases(&self, parts: &[Matrix]) -> Result<Tensor, Error> {
        let bias = |matrix: &Matrix| {
            if matrix.bias {
                return self.tensor(&format!("{}.bias", matrix.name), &[matrix.rows]);
            }
            Ok(Tensor::f_zeros([matrix.rows as i64], (self.target.dtype, self.target.device))?)
        };
        Ok(Tensor::f_cat(&parts.iter().map(bias).collect::<Result<Vec<_>, Error>>()?, 0)?)
    }

    /// Returns a tensor of exactly this shape, in the model's dtype.
    pub(crate) fn tensor(&self, name: &str, shape: &[usize]) -> Result<Tensor, Error> {
        let stored = self.file.tensor(name, shape)?;
        let tensor = self.empty(shape)?;
        self.copy(&stored, &tensor)?;
        Ok(tensor)
    }

    /// Returns a vector of exactly this length in f32, still on the CPU.
    pub(crate) fn vector(&self, name: &str, length: usize) -> Result<Tensor, Error> {
        Ok(Tensor::f_from_slice(&self.file.tensor(name, &[length])?.to_f32()?)?)
    }

    pub(crate) fn target(&self) -> TorchTarget {
        self.target
    }

    fn empty(&self, shape: &[usize]) -> Result<Tensor, Error> {
        let shape: Vec<i64> = shape.iter().map(|&dim| dim as i64).collect();
        Ok(Tensor::f_empty(shape, (self.target.dtype, self.target.device))?)
    }

    /// Fills a stack of matrices, `[rows, columns]`.
    fn fill(&self, stacked: &Tensor, parts: &[Matrix]) -> Result<(), Error> {
        let mut start = 0;
        for part in parts {
            let stored = self.file.tensor(&format!("{}.weight", part.name), &[part.rows, part.columns])?;
            self.copy(&stored, &stacked.f_narrow(0, start, part.rows as i64)?)?;
            start += part.rows as i64;
        }
        Ok(())
    }

    /// Copies a stored tensor into a tensor of its shape.
    fn copy(&self, stored: &Stored<'_>, tensor: &Tensor) -> Result<(), Error> {
        let rows = tensor.f_view([stored.row_count() as i64, -1])?;
        for piece in pieces(stored) {
            let (start, count) = (piece.start as i64, piece.len() as i64);
            let values = self.on_device(read(stored, piece)?)?.f_view([count, -1])?;
            rows.f_narrow(0, start, count)?.f_copy_(&values)?;
        }
        if stored.bytes.len() >= LARGE_BYTES {
            heap::return_freed();
        }
        Ok(())
    }

    /// Copies a piece to the device. The host does not wait for the copy from pinned memory, but for an
    /// earlier one. libtorch reuses that memory after the copy only.
    fn on_device(&self, piece: Tensor) -> Result<Tensor, Error> {
        let TorchTarget { device, .. } = self.target;
        if device == Device::Cpu {
            return Ok(piece);
        }
        let kind = piece.f_kind()?;
        let on_device = piece.f_pin_memory(device)?.f_to_device_(device, kind, true, false)?;
        self.in_flight.add(device)?;
        Ok(on_device)
    }
}

/// Returns the shape of matrices whose rows are adjacent.
pub(super) fn stacked_shape(parts: &[Matrix]) -> [usize; 2] {
    [parts.iter().map(|part| part.rows).sum(), parts.first().map_or(0, |part| part.columns)]
}

/// Returns the ranges of rows that are read together. A vector is read as a whole, since its blocks
/// contain several rows.
fn pieces(stored: &Stored<'_>) -> impl Iterator<Item = Range<usize>> {
    let (count, row_bytes) = (stored.row_count(), stored.columns() * size_of::<f32>());
    let most = if stored.shape.len() < 2 { count } else { (PIECE_BYTES / row_bytes.max(1)).max(1) };
    (0..count).step_by(most).map(move |start| start..count.min(start + most))
}

/// Reads rows of a tensor on the CPU, in its kind or in f32: `[values]`
fn read(stored: &Stored<'_>, rows: Range<usize>) -> Result<Tensor, Error> {
    let Some(kind) = kind(stored.dtype) else { return Ok(Tensor::f_from_slice(&stored.floats(rows)?)?) };
    let values = rows.len() * stored.columns();
    Ok(Tensor::f_from_data_size(&stored.rows(rows)?, &[values as i64], kind)?)
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

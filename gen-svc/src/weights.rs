//! A model's config and tensors by name, from whatever files it is in. Tensors are seen as they are stored: raw blocks stay raw, and
//! nothing is copied before it is asked for. One that is missing or misshapen is an error that says which, what was expected and what
//! was found.

use std::sync::Arc;

use serde_json::Value;
use tandem_model_files::artifacts::Artifacts;
use tandem_model_files::artifacts::gguf::{GgmlType, GgufError};
use tch::{Device, Kind};
use tokio_util::sync::CancellationToken;

use crate::error::Error;

mod folder;
mod gguf;
mod gguf_config;
mod gguf_names;
pub mod quant;

/// The device and the dtype of a libtorch model.
#[derive(Debug, Clone, Copy)]
pub struct TorchTarget {
    /// The device of all tensors.
    pub device: Device,
    /// The dtype of weights and activations.
    pub dtype: Kind,
}

impl TorchTarget {
    /// The CPU, in 32-bit floats.
    pub const REFERENCE: Self = Self { device: Device::Cpu, dtype: Kind::Float };
}

/// The files of a model, whatever their format.
trait Source: std::fmt::Debug + Send + Sync {
    /// A tensor, under the name that transformers gives it.
    fn stored(&self, name: &str) -> Result<Stored<'_>, Error>;
}

/// A tensor as it is stored.
#[derive(Debug, Clone)]
pub struct Stored<'a> {
    /// In the file.
    pub name: String,
    /// How its numbers are stored: blocks of so many numbers, along the last dimension.
    pub dtype: GgmlType,
    /// Outermost first.
    pub shape: Vec<usize>,
    /// As many as shape and dtype make it, not aligned.
    pub bytes: &'a [u8],
    /// In which order its rows are.
    pub order: RowOrder,
}

/// The order in which a tensor's rows are stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RowOrder {
    /// As the model has them.
    AsIs,
    /// Within each of `heads` heads of D rows, row i + D/2 follows row i, so that the two rows of a rotated pair are
    /// adjacent.
    Interleaved {
        /// How many heads the rows are of.
        heads: usize,
    },
}

impl<'a> Stored<'a> {
    /// Whether its numbers are stored one by one.
    #[must_use]
    pub fn is_float(&self) -> bool {
        matches!(self.dtype, GgmlType::F32 | GgmlType::F16 | GgmlType::BF16)
    }

    /// The bytes of each row, in the model's order.
    pub fn rows(&self) -> impl Iterator<Item = &'a [u8]> {
        let Self { bytes, order, .. } = *self;
        let count = self.shape.first().copied().unwrap_or(1).max(1);
        let size = bytes.len() / count;
        (0..count).map(move |row| &bytes[order.stored(row, count) * size..][..size])
    }

    /// All numbers, row by row in the model's order.
    ///
    /// # Errors
    /// They are stored in a way that cannot be read.
    pub fn to_f32(&self) -> Result<Vec<f32>, Error> {
        let mut values = vec![0.0; self.shape.iter().product()];
        let row = values.len() / self.shape.first().copied().unwrap_or(1).max(1);
        for (bytes, out) in self.rows().zip(values.chunks_exact_mut(row.max(1))) {
            quant::dequantize_into(self.dtype, bytes, out).ok_or_else(|| self.unreadable())?;
        }
        Ok(values)
    }

    /// Refuses one that has another shape, or cannot be read.
    fn check(&self, shape: &[usize]) -> Result<(), Error> {
        if self.shape != shape || !self.order.fits(shape.first().copied().unwrap_or(0)) {
            let whole = |shape: &[usize]| shape.iter().map(|&dim| dim as i64).collect();
            let (expected, found) = (whole(shape), whole(&self.shape));
            return Err(Error::TensorShape { name: self.name.clone(), expected, found });
        }
        if quant::is_readable(self.dtype) { Ok(()) } else { Err(self.unreadable()) }
    }

    fn unreadable(&self) -> Error {
        Error::TensorType { name: self.name.clone(), found: self.dtype.to_string() }
    }
}

impl RowOrder {
    /// Whether so many rows can be stored in this order.
    fn fits(self, count: usize) -> bool {
        match self {
            Self::AsIs => true,
            Self::Interleaved { heads } => {
                heads > 0 && count.is_multiple_of(heads) && (count / heads).is_multiple_of(2)
            }
        }
    }

    /// Where a row of the model is among `count` stored ones.
    fn stored(self, row: usize, count: usize) -> usize {
        match self {
            Self::AsIs => row,
            Self::Interleaved { heads } => {
                let size = count / heads;
                let (head, row) = (row / size, row % size);
                head * size + row % (size / 2) * 2 + row / (size / 2)
            }
        }
    }
}

/// A model's weights: its config, under the names of `config.json`, and its tensors, under the names of transformers.
#[derive(Debug)]
pub struct ModelFile {
    source: Box<dyn Source>,
    config: Value,
    cancelled: CancellationToken,
}

impl ModelFile {
    /// The weights of the model that `artifacts` describe: in a GGUF file, or in a folder's safetensors.
    ///
    /// # Errors
    /// There are none, or a header is not what it should be.
    pub fn new(artifacts: &Artifacts) -> Result<Self, Error> {
        if let Some(file) = artifacts.gguf() {
            let file = gguf::GgufModel::new(Arc::clone(file)).map_err(header)?;
            let config = gguf_config::config(&file).map_err(header)?;
            return Ok(Self { source: Box::new(file), config, cancelled: CancellationToken::new() });
        }
        let folder = folder::FolderModel::open(&artifacts.path)?;
        Ok(Self { source: Box::new(folder), config: artifacts.config.clone(), cancelled: CancellationToken::new() })
    }

    /// Returns the same file, whose [`tensor`](Self::tensor) fails once `cancelled` is cancelled.
    #[must_use]
    pub fn cancelled_by(self, cancelled: CancellationToken) -> Self {
        Self { cancelled, ..self }
    }

    /// Such as `llama`.
    #[must_use]
    pub fn architecture(&self) -> &str {
        self.config["model_type"].as_str().unwrap_or_default()
    }

    /// What `config.json` says, or would say.
    #[must_use]
    pub fn config(&self) -> &Value {
        &self.config
    }

    /// A tensor of exactly this shape, that can be read.
    ///
    /// # Errors
    /// It is missing, has another shape, or is stored in a way that cannot be read; [`Error::LoadCancelled`] once the load is
    /// cancelled.
    pub fn tensor(&self, name: &str, shape: &[usize]) -> Result<Stored<'_>, Error> {
        if self.cancelled.is_cancelled() {
            return Err(Error::LoadCancelled);
        }
        let stored = self.source.stored(name)?;
        stored.check(shape)?;
        Ok(stored)
    }
}

fn header(error: GgufError) -> Error {
    Error::Header(Box::new(error))
}

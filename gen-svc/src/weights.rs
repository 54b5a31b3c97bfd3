//! A model's config and tensors by name, in any file format. Tensors are read as stored: quantized
//! blocks stay quantized. A tensor is read when it is packed.

use serde_json::Value;
use tandem_model_files::artifacts::Artifacts;
use tch::{Device, Kind};
use tokio_util::sync::CancellationToken;

use crate::error::Error;

mod folder;
pub mod gguf;
pub mod quant;
mod stored;

use folder::FolderModel;
use gguf::GgufModel;
use gguf::architecture::GgufArchitecture;
use gguf::header::GgufHeader;
use stored::TensorSource;
pub use stored::{RowOrder, Stored};

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

/// A model's config, under the names of `config.json`, and its tensors, under the names of
/// transformers.
#[derive(Debug)]
pub struct ModelFile {
    source: Box<dyn TensorSource>,
    config: Value,
    cancelled: CancellationToken,
}

impl ModelFile {
    /// Opens the safetensors files of a Hugging Face folder.
    ///
    /// # Errors
    /// The folder has no weights, or a header is malformed.
    pub fn from_folder(artifacts: &Artifacts) -> Result<Self, Error> {
        let folder = FolderModel::open(&artifacts.path)?;
        Ok(Self { source: Box::new(folder), config: artifacts.config.clone(), cancelled: CancellationToken::new() })
    }

    /// Opens a GGUF file of the architecture that transformers calls `model_type`.
    ///
    /// # Errors
    /// A value of the header has the wrong type.
    pub fn from_gguf(header: GgufHeader, model_type: &str, architecture: GgufArchitecture) -> Result<Self, Error> {
        let config = gguf::config::config(&header, model_type, &architecture)?;
        let model = GgufModel::new(header, architecture);
        Ok(Self { source: Box::new(model), config, cancelled: CancellationToken::new() })
    }

    /// Returns the same file, whose [`tensor`](Self::tensor) fails once `cancelled` is cancelled.
    #[must_use]
    pub fn cancelled_by(self, cancelled: CancellationToken) -> Self {
        Self { cancelled, ..self }
    }

    /// Returns the architecture's name in transformers, such as `llama`.
    #[must_use]
    pub fn architecture(&self) -> &str {
        self.config["model_type"].as_str().unwrap_or_default()
    }

    /// Returns `config.json`, or its equivalent in a GGUF header.
    #[must_use]
    pub fn config(&self) -> &Value {
        &self.config
    }

    /// Returns true if the file has a tensor of this name, in any shape and type.
    #[must_use]
    pub fn has(&self, name: &str) -> bool {
        !matches!(self.source.stored(name), Err(Error::TensorMissing { .. }))
    }

    /// Returns a tensor of exactly this shape and of a readable type.
    ///
    /// # Errors
    /// The tensor is missing, has another shape, or has a type that cannot be read;
    /// [`Error::LoadCancelled`] once the load is cancelled.
    pub fn tensor(&self, name: &str, shape: &[usize]) -> Result<Stored<'_>, Error> {
        if self.cancelled.is_cancelled() {
            return Err(Error::LoadCancelled);
        }
        let stored = self.source.stored(name)?;
        stored.check(shape)?;
        Ok(stored)
    }
}

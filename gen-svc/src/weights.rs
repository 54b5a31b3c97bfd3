//! A model's tensors by name. A tensor that is missing or misshapen is an error that says which, what was expected and what was found.

use std::sync::Arc;

use serde_json::Value;
use tandem_common::artifacts::Artifacts;
use tandem_common::artifacts::gguf::GgufError;
use tch::{Device, Kind, Tensor};

use crate::error::Error;

mod gguf;
pub mod quant;

/// Where a model computes, and in what.
#[derive(Debug, Clone, Copy)]
pub struct Placement {
    /// Where its tensors lie.
    pub device: Device,
    /// Of its weights and activations.
    pub dtype: Kind,
}

/// A model's weights: its config, under the names of `config.json`, and its tensors, under the names of transformers.
#[derive(Debug)]
pub struct ModelFile {
    file: gguf::GgufModel,
    config: Value,
}

impl ModelFile {
    /// The weights of the model that `artifacts` describe.
    ///
    /// # Errors
    /// They are in no format that can be read, or the header is incomplete.
    pub fn new(artifacts: &Artifacts) -> Result<Self, Error> {
        let unsupported = || Error::UnsupportedFormat { path: artifacts.path.clone() };
        let file = Arc::clone(artifacts.gguf().ok_or_else(unsupported)?);
        let file = gguf::GgufModel::new(file).map_err(header)?;
        let config = file.config().map_err(header)?;
        Ok(Self { file, config })
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
}

/// The tensors below a path of names.
#[derive(Debug)]
pub struct Weights<'a> {
    file: &'a ModelFile,
    placement: Placement,
    path: String,
}

impl<'a> Weights<'a> {
    /// All tensors of a file.
    #[must_use]
    pub fn new(file: &'a ModelFile, placement: Placement) -> Self {
        Self { file, placement, path: String::new() }
    }

    /// Those whose names go on with `name`.
    #[must_use]
    pub fn at(&self, name: &str) -> Self {
        Self { path: self.full(name), ..*self }
    }

    /// Where they go when they are read.
    #[must_use]
    pub fn placement(&self) -> Placement {
        self.placement
    }

    /// Reads the tensor `name`, in the model's dtype and on its device.
    ///
    /// # Errors
    /// It is missing, has another shape, or is stored in a way that cannot be read.
    pub fn tensor(&self, name: &str, shape: &[i64]) -> Result<Tensor, Error> {
        let tensor = self.file.file.read(&self.full(name), shape)?;
        Ok(tensor.f_to_device(self.placement.device)?.f_to_kind(self.placement.dtype)?)
    }

    fn full(&self, name: &str) -> String {
        if self.path.is_empty() { name.to_owned() } else { format!("{}.{name}", self.path) }
    }
}

fn header(error: GgufError) -> Error {
    Error::Header(Box::new(error))
}

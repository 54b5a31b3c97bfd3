//! A model's config and tensors by name, in any file format. Tensors are read as stored: quantized
//! blocks stay quantized. A tensor is read when it is packed.

use std::collections::HashSet;
use std::path::Path;

use parking_lot::Mutex;
use serde_json::Value;
use tandem_images::Files;
use tokio_util::sync::CancellationToken;

use crate::error::LoadError;

mod folder;
pub mod gguf;
mod pair;
mod progress;
pub mod quant;
mod stored;

use folder::FolderModel;
use gguf::GgufModel;
use gguf::architecture::GgufArchitecture;
use gguf::header::GgufHeader;
use gguf::mmproj::MmprojModel;
use gguf::projector::{GgufProjector, ProjectorConfig};
use pair::GgufPair;
use progress::Progress;
use stored::TensorSource;
pub use stored::{RowOrder, Stored};

/// A model's config, under the names of `config.json`, and its tensors, under the names of
/// transformers.
#[derive(Debug)]
pub struct ModelFile {
    source: Box<dyn TensorSource>,
    config: Value,
    /// The files of the processor of images. `None`: they are in the folder, or there are none.
    processor: Option<Files>,
    cancelled: CancellationToken,
    /// The names in the file of the tensors that were asked for.
    read: Mutex<HashSet<String>>,
    /// The load that is reported, once it has started.
    progress: Option<Progress>,
}

impl ModelFile {
    /// Opens the safetensors files of a Hugging Face folder with this config.
    ///
    /// # Errors
    /// The folder has no weights, or a header is malformed.
    pub fn from_folder(folder: &Path, config: Value) -> Result<Self, LoadError> {
        Ok(Self::new(Box::new(FolderModel::open(folder)?), config))
    }

    /// Opens a GGUF file of the architecture that transformers calls `model_type`.
    ///
    /// # Errors
    /// A value of the header has the wrong type.
    pub fn from_gguf(header: GgufHeader, model_type: &str, architecture: GgufArchitecture) -> Result<Self, LoadError> {
        let config = gguf::config::config(&header, model_type, &architecture)?;
        Ok(Self::new(Box::new(GgufModel::new(header, architecture)), config))
    }

    /// Returns the same GGUF file, with the tower of an `mmproj` file.
    ///
    /// # Errors
    /// A value of a header has the wrong type, or a setting of the tower is not supported.
    pub fn from_gguf_pair(
        (header, model_type, architecture): (GgufHeader, &str, GgufArchitecture),
        (tower, projector): (GgufHeader, GgufProjector),
    ) -> Result<Self, LoadError> {
        let text_config = gguf::config::config(&header, model_type, &architecture)?;
        let settings = gguf::mmproj_config::config(&tower, &projector)?;
        let processor = settings.files(&projector);
        let ProjectorConfig { model: mut config, vision, .. } = settings;
        config.insert("model_type".into(), projector.model_type.into());
        config.insert("text_config".into(), text_config);
        config.insert("vision_config".into(), Value::Object(vision));
        let text = GgufModel::new(header, architecture);
        let pair = GgufPair { text, tower: MmprojModel::new(tower, projector)? };
        Ok(Self { processor: Some(processor), ..Self::new(Box::new(pair), Value::Object(config)) })
    }

    fn new(source: Box<dyn TensorSource>, config: Value) -> Self {
        Self {
            source,
            config,
            processor: None,
            cancelled: CancellationToken::new(),
            read: Mutex::default(),
            progress: None,
        }
    }

    /// Returns the files of the processor of images, if they are not in a folder.
    #[must_use]
    pub fn processor(&self) -> Option<&Files> {
        self.processor.as_ref()
    }

    /// Returns the same file, whose [`tensor`](Self::tensor) fails once `cancelled` is cancelled.
    #[must_use]
    pub fn cancelled_by(self, cancelled: CancellationToken) -> Self {
        Self { cancelled, ..self }
    }

    /// Returns the same file. From now on, the log says every few seconds how much of it is read.
    #[must_use]
    pub fn with_progress(self) -> Self {
        Self { progress: Some(Progress::start(self.source.bytes())), ..self }
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
        !matches!(self.find(name), Err(LoadError::TensorMissing { .. }))
    }

    /// Returns the names in the file of the tensors that were never asked for.
    #[must_use]
    pub fn unread(&self) -> Vec<String> {
        self.never_read(self.source.names())
    }

    /// Returns the names in the `mmproj` file of the tensors that were never asked for.
    #[must_use]
    pub fn unread_of_tower(&self) -> Vec<String> {
        self.never_read(self.source.tower_names())
    }

    fn never_read(&self, mut names: Vec<String>) -> Vec<String> {
        let read = self.read.lock();
        names.retain(|name| !read.contains(name));
        names
    }

    /// Returns whether a module has a bias. `None`: the config decides.
    #[must_use]
    pub fn bias(&self, module: &str) -> Option<bool> {
        self.source.bias(module)
    }

    /// Returns a tensor of this shape and of a readable type.
    ///
    /// # Errors
    /// The tensor is missing, has another shape, or has a type that cannot be read;
    /// [`LoadError::Cancelled`] once the load is cancelled.
    pub fn tensor(&self, name: &str, shape: &[usize]) -> Result<Stored<'_>, LoadError> {
        if self.cancelled.is_cancelled() {
            return Err(LoadError::Cancelled);
        }
        let stored = self.find(name)?.shaped(shape)?;
        Ok(Stored { progress: self.progress.as_ref(), ..stored })
    }

    fn find(&self, name: &str) -> Result<Stored<'_>, LoadError> {
        let stored = self.source.stored(name)?;
        self.read.lock().insert(stored.name.clone());
        Ok(stored)
    }
}

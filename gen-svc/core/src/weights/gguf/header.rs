//! The settings in a GGUF header, under the keys of its architecture.

use std::sync::Arc;

use tandem_model_files::gguf::{FromValue, Gguf, GgufError};

use crate::error::LoadError;

/// A GGUF file and the name of its architecture.
#[derive(Debug)]
pub struct GgufHeader {
    gguf: Arc<Gguf>,
    architecture: String,
}

impl GgufHeader {
    /// Reads the architecture's name.
    ///
    /// # Errors
    /// The file names no architecture.
    pub fn new(gguf: Arc<Gguf>) -> Result<Self, LoadError> {
        let architecture = gguf.get::<&str>("general.architecture").map_err(unreadable)?.to_owned();
        Ok(Self { gguf, architecture })
    }

    /// Returns the architecture's name in GGUF, such as `qwen3moe`.
    #[must_use]
    pub fn architecture(&self) -> &str {
        &self.architecture
    }

    /// Returns the file.
    #[must_use]
    pub fn file(&self) -> &Gguf {
        &self.gguf
    }

    /// Returns the bytes of all tensors.
    #[must_use]
    pub fn tensor_bytes(&self) -> u64 {
        self.gguf.tensors().map(|tensor| tensor.data.len() as u64).sum()
    }

    /// Returns an optional setting. `key` is the part of its key after the architecture's name.
    ///
    /// # Errors
    /// The value has another type.
    pub fn find<'a, T: FromValue<'a>>(&'a self, key: &str) -> Result<Option<T>, LoadError> {
        self.gguf.find(&format!("{}.{key}", self.architecture)).map_err(unreadable)
    }

    /// Returns the sliding window, if the file has one.
    ///
    /// # Errors
    /// The value is not a number.
    pub fn window(&self) -> Result<Option<u32>, LoadError> {
        Ok(self.find("attention.sliding_window")?.filter(|window| *window > 0))
    }

    /// Returns the size of a head.
    ///
    /// # Errors
    /// A value is not a number.
    pub fn head_size(&self) -> Result<u32, LoadError> {
        self.find("attention.key_length")?.map_or_else(|| self.hidden_size_per_head(), Ok)
    }

    /// Returns the hidden size divided by the number of heads.
    ///
    /// # Errors
    /// A value is not a number.
    pub fn hidden_size_per_head(&self) -> Result<u32, LoadError> {
        let heads = self.find::<u32>("attention.head_count")?.unwrap_or(0);
        let hidden = self.find::<u32>("embedding_length")?.unwrap_or(0);
        Ok(hidden.checked_div(heads).unwrap_or(0))
    }
}

fn unreadable(error: GgufError) -> LoadError {
    LoadError::Header(Box::new(error))
}

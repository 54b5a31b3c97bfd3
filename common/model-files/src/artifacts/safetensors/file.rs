//! One safetensors file.

use std::path::Path;

use memmap2::Mmap;

use super::error::SafetensorsError;
use super::header::Header;
use super::view::TensorView;
use crate::map::map;

/// An open, memory-mapped file.
pub struct Safetensors {
    map: Mmap,
    header: Header,
}

impl Safetensors {
    /// Maps the file and checks its whole header.
    ///
    /// # Errors
    /// Fails if the file cannot be opened or its header is invalid.
    pub fn open(path: &Path) -> Result<Self, SafetensorsError> {
        let map = map(path).map_err(|source| SafetensorsError::Open { path: path.to_owned(), source })?;
        let header = Header::read(&map).map_err(|source| SafetensorsError::Header { path: path.to_owned(), source })?;
        Ok(Self { map, header })
    }

    /// Returns the tensor with this name, or None if the file does not contain it.
    #[must_use]
    pub fn tensor(&self, name: &str) -> Option<TensorView<'_>> {
        self.header.tensor(&self.map, name)
    }

    /// Returns the names of all tensors, unordered.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.header.names()
    }
}

impl std::fmt::Debug for Safetensors {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Safetensors").field("tensors", &self.header.names().count()).finish_non_exhaustive()
    }
}

//! One safetensors file.

use std::fs::File;
use std::path::Path;

use super::error::SafetensorsError;
use super::header::Header;
use super::view::{Entry, TensorView};
use crate::source_file::SourceFile;

/// A file whose header is read.
pub struct Safetensors {
    file: SourceFile,
    header: Header,
}

impl Safetensors {
    /// Reads and checks the whole header.
    ///
    /// # Errors
    /// Fails if the file cannot be opened or its header is invalid.
    pub fn open(path: &Path) -> Result<Self, SafetensorsError> {
        let failed = |source| SafetensorsError::Open { path: path.to_owned(), source };
        let invalid = |source| SafetensorsError::Header { path: path.to_owned(), source };
        let read = |mut file: &File, length| Header::read(&mut file, length).map_err(invalid);
        let (file, header) = SourceFile::open(path, failed, read)?;
        Ok(Self { file, header })
    }

    /// Returns the tensor with this name, or None if the file does not contain it.
    #[must_use]
    pub fn tensor(&self, name: &str) -> Option<TensorView<'_>> {
        let Entry { dtype, shape, range } = self.header.entry(name)?;
        Some(TensorView { dtype, shape, data: self.file.bytes(range.clone()) })
    }

    /// Returns the bytes of the header.
    pub(super) fn header_bytes(&self) -> u64 {
        self.header.bytes()
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

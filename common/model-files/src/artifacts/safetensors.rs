//! Safetensors files, memory-mapped: tensors by name, as they lie in the file. Format: <https://github.com/huggingface/safetensors>.
//!
//! A file is untrusted. Every length, offset and shape is checked against the size of the file, so a file that lies costs an error
//! and no memory.

mod checkpoint;
mod header;

use std::ops::Range;
use std::path::{Path, PathBuf};

use memmap2::Mmap;

use super::map::map;
pub use checkpoint::Checkpoint;
pub use header::{Header, HeaderError};

/// Why a model's safetensors files could not be read.
#[derive(Debug, thiserror::Error)]
pub enum SafetensorsError {
    /// The folder has neither the one file nor the index of several.
    #[error("{} has neither {} nor {}", path.display(), checkpoint::FILE, checkpoint::INDEX)]
    None { path: PathBuf },
    /// A file could not be opened or mapped.
    #[error("cannot open {}", path.display())]
    Open {
        path: PathBuf,
        #[source]
        source: std::io::Error,
    },
    /// A file's header is not what it should be.
    #[error("{}", path.display())]
    Header {
        path: PathBuf,
        #[source]
        source: HeaderError,
    },
    /// The index of a model's files is not what it should be.
    #[error("{} is not readable", path.display())]
    Index {
        path: PathBuf,
        #[source]
        source: serde_json::Error,
    },
    /// The index names more files than any model has.
    #[error("{} names {count} files, more than {limit}", path.display())]
    Files { path: PathBuf, count: usize, limit: usize },
    /// The index names a file that is not in the model's folder.
    #[error("{} names the file {file:?}, which is no plain file name", path.display())]
    FileName { path: PathBuf, file: String },
}

/// An open file.
pub struct Safetensors {
    map: Mmap,
    header: Header,
}

/// A tensor as the file holds it.
#[derive(Debug, Clone)]
pub struct TensorView<'a> {
    /// The format's name, such as `BF16`.
    pub dtype: &'a str,
    /// Outermost first.
    pub shape: &'a [usize],
    /// Row by row, little-endian, not aligned. For a dtype whose size is known, as many as `shape` makes it.
    pub data: &'a [u8],
}

/// A tensor's place in a file.
#[derive(Debug, Clone)]
struct Entry {
    dtype: String,
    shape: Vec<usize>,
    /// In the whole file.
    range: Range<usize>,
}

impl Safetensors {
    /// Maps the file and checks its whole header.
    ///
    /// # Errors
    /// It cannot be opened, or its header is not what it should be.
    pub fn open(path: &Path) -> Result<Self, SafetensorsError> {
        let map = map(path).map_err(|source| SafetensorsError::Open { path: path.to_owned(), source })?;
        let header = Header::read(&map).map_err(|source| SafetensorsError::Header { path: path.to_owned(), source })?;
        Ok(Self { map, header })
    }

    /// A tensor by name.
    #[must_use]
    pub fn tensor(&self, name: &str) -> Option<TensorView<'_>> {
        self.header.tensor(&self.map, name)
    }

    /// The names of all tensors, in no order.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.header.names()
    }
}

impl std::fmt::Debug for Safetensors {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Safetensors").field("tensors", &self.header.names().count()).finish_non_exhaustive()
    }
}

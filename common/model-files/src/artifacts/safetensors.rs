//! Memory-mapped safetensors files: tensors by name, in the file's own bytes. Format:
//! <https://github.com/huggingface/safetensors>.
//!
//! A file is untrusted. Every length, offset and shape is checked against the file's size before
//! any allocation. The reader is not the safetensors crate's, which silently keeps the last of two
//! tensors with the same name and rejects unknown dtypes.

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
    /// The folder contains neither a single file nor an index.
    #[error("{} contains neither {} nor {}", path.display(), checkpoint::FILE, checkpoint::INDEX)]
    None { path: PathBuf },
    /// A file could not be opened or mapped.
    #[error("cannot open {}", path.display())]
    Open {
        path: PathBuf,
        #[source]
        source: std::io::Error,
    },
    /// The header of a file is invalid.
    #[error("{}", path.display())]
    Header {
        path: PathBuf,
        #[source]
        source: HeaderError,
    },
    /// The index is invalid.
    #[error("{} is not a valid index", path.display())]
    Index {
        path: PathBuf,
        #[source]
        source: serde_json::Error,
    },
    /// The index names too many files.
    #[error("{} names {count} files, limit {limit}", path.display())]
    Files { path: PathBuf, count: usize, limit: usize },
    /// The index names a file outside of the model's folder.
    #[error("{} names {file:?}, which is not a plain file name", path.display())]
    FileName { path: PathBuf, file: String },
}

/// An open file.
pub struct Safetensors {
    map: Mmap,
    header: Header,
}

/// A tensor in a file.
#[derive(Debug, Clone)]
pub struct TensorView<'a> {
    /// The format's name of the number type, such as `BF16`.
    pub dtype: &'a str,
    /// The dimensions, outermost first.
    pub shape: &'a [usize],
    /// The numbers: row-major, little-endian, not aligned. For a known dtype the length matches
    /// `shape`.
    pub data: &'a [u8],
}

/// The location of a tensor.
#[derive(Debug, Clone)]
struct Entry {
    dtype: String,
    shape: Vec<usize>,
    /// Byte range in the file.
    range: Range<usize>,
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

    /// Returns a tensor by name.
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

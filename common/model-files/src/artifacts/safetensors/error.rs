//! The errors of safetensors files.

use std::path::PathBuf;

use super::header::HeaderError;
use super::names::{FILE, INDEX};
use crate::excerpt::{excerpt, shown};

/// Why a model's safetensors files could not be read.
#[derive(Debug, thiserror::Error)]
pub enum SafetensorsError {
    /// The folder contains neither a single file nor an index.
    #[error("{} contains neither {} nor {}", shown(path), FILE, INDEX)]
    None { path: PathBuf },
    /// The folder has other safetensors files only.
    #[error("{} contains {}, and neither {} nor {}: {remedy}", shown(path), excerpt(file), FILE, INDEX)]
    Other { path: PathBuf, file: String, remedy: &'static str },
    /// The folder has its weights in a file of pickled tensors only, which may run code.
    #[error(
        "{} contains {}, and neither {} nor {}; \
         AutoModelForCausalLM.from_pretrained(FOLDER).save_pretrained(FOLDER) of transformers converts it",
        shown(path),
        excerpt(file),
        FILE,
        INDEX
    )]
    Pickled { path: PathBuf, file: String },
    /// A file could not be opened, or it changed while its header was read.
    #[error("cannot open {}", shown(path))]
    Open {
        path: PathBuf,
        #[source]
        source: std::io::Error,
    },
    /// The header of a file is invalid.
    #[error("{}", shown(path))]
    Header {
        path: PathBuf,
        #[source]
        source: HeaderError,
    },
    /// The index is invalid.
    #[error("{} is not a valid index: {}", shown(path), excerpt(problem))]
    Index { path: PathBuf, problem: serde_json::Error },
    /// The index names too many files.
    #[error("{} names {count} files, limit {limit}", shown(path))]
    Files { path: PathBuf, count: usize, limit: usize },
    /// The headers of all files have too many bytes.
    #[error("{}: the headers of this file and those before it have {found} bytes, limit {limit}", shown(path))]
    Headers { path: PathBuf, found: u64, limit: u64 },
    /// The index names a file outside of the model's folder.
    #[error("{} names {:?}, which is not a plain file name", shown(path), excerpt(file))]
    FileName { path: PathBuf, file: String },
    /// The load was cancelled between two files.
    #[error("cancelled")]
    Cancelled,
    /// Two files have a tensor of the same name.
    #[error("{}: tensor {:?} is in an earlier file too", shown(path), excerpt(name))]
    Repeated { path: PathBuf, name: String },
}

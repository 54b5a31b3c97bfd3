//! The errors of reading artifacts.

use std::path::PathBuf;

use super::contents::TemplatesError;
use super::names::FILES;
use crate::excerpt::{excerpt, shown};
use crate::gguf::GgufError;

/// Why artifacts could not be read.
#[derive(Debug, thiserror::Error)]
pub enum ArtifactsError {
    /// The path is neither a folder nor a `.gguf` file.
    #[error("{} is neither a folder nor a .gguf file", shown(path))]
    Kind { path: PathBuf },
    /// Nothing has this path.
    #[error("{} does not exist", shown(path))]
    Absent { path: PathBuf },
    /// Nothing has this path, which may be the name of a repository.
    #[error(
        "{} does not exist; if it is a repository of Hugging Face, `hf download {}` fetches it and prints the folder to \
         name here",
        shown(path),
        shown(path)
    )]
    Repository { path: PathBuf },
    /// The path is a file of weights, which is a part of a model.
    #[error("{} is a part of a model; name its folder", shown(path))]
    Weights { path: PathBuf },
    /// The folder contains none of the known model files.
    #[error("{} contains no .gguf file, and none of {}", shown(path), FILES.join(", "))]
    Empty { path: PathBuf },
    /// The file is a model, not its tower.
    #[error("{} has the architecture {:?}, expected {expected}", shown(path), excerpt(found))]
    NotMmproj { path: PathBuf, found: String, expected: &'static str },
    /// The folder contains several models or snapshots.
    #[error("{} contains several {kind}; name one of {}", shown(path), shown(names.join(", ")))]
    Several { path: PathBuf, kind: &'static str, names: Vec<String> },
    /// The folder is a cache of repositories.
    #[error("{} is a cache of models; name the folder of one, such as {}", shown(path), shown(example))]
    Cache { path: PathBuf, example: String },
    /// A file could not be read.
    #[error("cannot read {}", shown(path))]
    Read {
        path: PathBuf,
        #[source]
        source: std::io::Error,
    },
    /// A JSON file has invalid syntax.
    #[error("{} is not valid JSON: {}", shown(path), excerpt(problem))]
    Json { path: PathBuf, problem: serde_json::Error },
    /// The values of a JSON file take too much memory.
    #[error("the values of {} take {found} bytes, limit {limit}", shown(path))]
    Memory { path: PathBuf, found: usize, limit: usize },
    /// The chat templates are too many or too long.
    #[error("{}", shown(path))]
    Templates {
        path: PathBuf,
        #[source]
        source: TemplatesError,
    },
    /// A field of a JSON file has the wrong type.
    #[error("{}: {} is not {expected}", shown(path), excerpt(field))]
    Field { path: PathBuf, field: String, expected: &'static str },
    /// The GGUF file could not be read.
    #[error("{}", shown(path))]
    Gguf {
        path: PathBuf,
        #[source]
        source: GgufError,
    },
}

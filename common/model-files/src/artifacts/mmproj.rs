//! `mmproj` files of llama.cpp: the vision tower and the projector of a model whose text is in
//! another GGUF file. Such a file has the architecture `clip`.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::error::ArtifactsError;
use crate::gguf::{Gguf, GgufError};

/// The part of a name that llama.cpp's converter gives these files.
const NAME: &str = "mmproj";
const ARCHITECTURE_KEY: &str = "general.architecture";
const ARCHITECTURE: &str = "clip";

/// Returns true if a `.gguf` file has `mmproj` in its name and the architecture `clip` in its
/// header. A file with an unreadable header has none.
#[must_use]
pub fn is_mmproj(path: &Path) -> bool {
    has_name(path) && Gguf::open(path).and_then(|gguf| is_clip(&gguf)).unwrap_or(false)
}

/// Opens an `mmproj` file of any name.
///
/// # Errors
/// The file is not a readable GGUF file, or has another architecture.
pub fn open_mmproj(path: &Path) -> Result<Arc<Gguf>, ArtifactsError> {
    let failed = |source| ArtifactsError::Gguf { path: path.to_owned(), source };
    let gguf = Gguf::open(path).map_err(failed)?;
    if is_clip(&gguf).map_err(failed)? {
        return Ok(Arc::new(gguf));
    }
    let found = gguf.get::<&str>(ARCHITECTURE_KEY).map_err(failed)?.to_owned();
    Err(ArtifactsError::NotMmproj { path: path.to_owned(), found, expected: ARCHITECTURE })
}

/// Opens the `mmproj` files in the folder of a model's file, sorted by name. Their names contain
/// `mmproj`.
///
/// # Errors
/// The folder or the header of such a file cannot be read.
pub fn mmproj_beside(model: &Path) -> Result<Vec<(PathBuf, Arc<Gguf>)>, ArtifactsError> {
    let folder = match model.parent() {
        Some(parent) if parent != Path::new("") => parent,
        _ => Path::new("."),
    };
    let failed = |source| ArtifactsError::Read { path: folder.to_owned(), source };
    let mut found = Vec::new();
    for entry in fs::read_dir(folder).map_err(failed)? {
        let path = entry.map_err(failed)?.path();
        if !has_name(&path) || !path.is_file() || path.file_name() == model.file_name() {
            continue;
        }
        let unreadable = |source| ArtifactsError::Gguf { path: path.clone(), source };
        let gguf = Gguf::open(&path).map_err(unreadable)?;
        if is_clip(&gguf).map_err(unreadable)? {
            found.push((path, Arc::new(gguf)));
        }
    }
    found.sort_by(|(one, _), (other, _)| one.cmp(other));
    Ok(found)
}

fn is_clip(gguf: &Gguf) -> Result<bool, GgufError> {
    Ok(gguf.find::<&str>(ARCHITECTURE_KEY)? == Some(ARCHITECTURE))
}

fn has_name(path: &Path) -> bool {
    let name = path.file_name().unwrap_or_default().to_string_lossy().to_ascii_lowercase();
    name.contains(NAME) && name.ends_with(".gguf")
}

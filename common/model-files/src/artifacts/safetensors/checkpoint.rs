//! The tensors of a model folder: one file, or several that an index names.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::fs;
use std::path::{Component, Path};

use serde::Deserialize;

use super::error::SafetensorsError;
use super::file::Safetensors;
use super::names::{FILE, INDEX};
use super::view::TensorView;
use crate::artifacts::json::read_file;
use crate::artifacts::names::is_pickled;
use crate::cancel::CancelScope;
use crate::python_json::parse;

/// The maximum number of files; the largest known models have some hundreds.
const MAX_FILES: usize = 4096;
const MAX_INDEX_BYTES: u64 = 64 << 20;
/// The maximum bytes of all headers together, as in GGUF files.
const MAX_HEADER_BYTES: u64 = 256 << 20;

/// All safetensors files of a model.
#[derive(Debug)]
pub struct Checkpoint {
    files: Vec<Safetensors>,
    /// The file of each tensor, as an index into `files`.
    by_name: HashMap<String, usize>,
}

#[derive(Deserialize)]
struct Index {
    weight_map: BTreeMap<String, String>,
}

impl Checkpoint {
    /// Reads the headers of a folder's files. Prefers `model.safetensors` to the index, as
    /// transformers does. Also as there, the index only names the files: all of their tensors are read.
    ///
    /// # Errors
    /// Fails if there is no file, or if a file or the index is invalid.
    pub fn open(folder: &Path) -> Result<Self, SafetensorsError> {
        let index = folder.join(INDEX);
        if folder.join(FILE).exists() {
            Self::read(folder, [FILE.to_owned()].into(), MAX_HEADER_BYTES)
        } else if index.exists() {
            Self::read(folder, files_of(&index)?, MAX_HEADER_BYTES)
        } else {
            Err(absent(folder))
        }
    }

    /// Reads the headers of files in a folder, which have at most `limit` bytes together.
    fn read(folder: &Path, names: BTreeSet<String>, limit: u64) -> Result<Self, SafetensorsError> {
        let mut whole = Self { files: Vec::new(), by_name: HashMap::new() };
        let mut found = 0;
        for path in names.iter().map(|name| folder.join(name)) {
            if CancelScope::is_cancelled() {
                return Err(SafetensorsError::Cancelled);
            }
            let file = Safetensors::open(&path)?;
            found += file.header_bytes();
            if found > limit {
                return Err(SafetensorsError::Headers { path, found, limit });
            }
            whole.add(&path, file)?;
        }
        Ok(whole)
    }

    /// Adds the tensors of a file.
    fn add(&mut self, path: &Path, file: Safetensors) -> Result<(), SafetensorsError> {
        for name in file.names() {
            if self.by_name.insert(name.to_owned(), self.files.len()).is_some() {
                return Err(SafetensorsError::Repeated { path: path.to_owned(), name: name.to_owned() });
            }
        }
        self.files.push(file);
        Ok(())
    }

    /// Returns a tensor by name.
    #[must_use]
    pub fn tensor(&self, name: &str) -> Option<TensorView<'_>> {
        self.files[*self.by_name.get(name)?].tensor(name)
    }

    /// Returns the names of all tensors, unordered.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.by_name.keys().map(String::as_str)
    }
}

/// Returns the error of a folder without safetensors files.
fn absent(folder: &Path) -> SafetensorsError {
    let path = folder.to_owned();
    let names = fs::read_dir(folder).into_iter().flatten().flatten().map(|entry| entry.file_name());
    let names: BTreeSet<String> = names.filter_map(|name| name.into_string().ok()).collect();
    if let Some(file) = names.iter().find(|name| is_pickled(name)) {
        return SafetensorsError::Pickled { path, file: file.clone() };
    }
    match names.into_iter().find(|name| name.ends_with(".safetensors")) {
        Some(file) => SafetensorsError::Other { path, remedy: remedy(&file), file },
        None => SafetensorsError::None { path },
    }
}

/// Returns the remedy for a folder whose only safetensors files are this one and others like it.
fn remedy(file: &str) -> &'static str {
    if file.starts_with("adapter_model") {
        "a LoRA adapter needs to be merged into its base model"
    } else if file.starts_with("consolidated") {
        "consolidated files are of Mistral's own form; take the files of transformers' form"
    } else if file.contains("-of-") {
        "a model in parts needs the index"
    } else {
        "rename it to model.safetensors if it is the whole model"
    }
}

/// Returns the names of the files that an index names.
fn files_of(index: &Path) -> Result<BTreeSet<String>, SafetensorsError> {
    let path = || index.to_owned();
    let text = read_file(index, MAX_INDEX_BYTES).map_err(|source| SafetensorsError::Open { path: path(), source })?;
    let Index { weight_map } = parse(&text).map_err(|problem| SafetensorsError::Index { path: path(), problem })?;
    let names = weight_map.into_values().map(|name| name.strip_prefix("./").map_or(name.clone(), str::to_owned));
    let names: BTreeSet<String> = names.collect();
    if names.len() > MAX_FILES {
        return Err(SafetensorsError::Files { path: path(), count: names.len(), limit: MAX_FILES });
    }
    match names.iter().find(|name| !is_plain(name)) {
        Some(file) => Err(SafetensorsError::FileName { path: path(), file: file.clone() }),
        None => Ok(names),
    }
}

/// Returns true if the name has neither a folder nor control characters in it.
fn is_plain(name: &str) -> bool {
    if name.contains(char::is_control) {
        return false;
    }
    let mut components = Path::new(name).components();
    matches!(components.next(), Some(Component::Normal(only)) if only == name) && components.next().is_none()
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::Checkpoint;
    use crate::artifacts::safetensors::SafetensorsError;

    #[test]
    fn the_headers_of_all_files_have_a_common_limit() {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/contract/model");
        let open = |limit| Checkpoint::read(&folder, ["model.safetensors".to_owned()].into(), limit);
        let bytes = open(u64::MAX).expect("a file").files[0].header_bytes();
        assert_eq!(open(bytes).expect("within the limit").files.len(), 1);
        assert!(matches!(open(bytes - 1), Err(SafetensorsError::Headers { found, .. }) if found == bytes));
        let two = ["model.safetensors", "../model/model.safetensors"].map(str::to_owned);
        let error = Checkpoint::read(&folder, two.into(), 2 * bytes - 1).expect_err("above the limit");
        assert!(matches!(error, SafetensorsError::Headers { found, .. } if found == 2 * bytes), "{error}");
    }
}

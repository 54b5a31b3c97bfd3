//! The tensors of a model folder: one file, or several with an index from tensor to file.

use std::collections::{BTreeMap, HashMap};
use std::fs;
use std::path::{Component, Path};

use serde::Deserialize;

use super::error::SafetensorsError;
use super::file::Safetensors;
use super::names::{FILE, INDEX};
use super::view::TensorView;
use crate::artifacts::json::read_file;
use crate::artifacts::names::is_pickled;
use crate::python_json::parse;

/// The maximum number of files; the largest known models have some hundreds.
const MAX_FILES: usize = 4096;
const MAX_INDEX_BYTES: u64 = 64 << 20;

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
    /// transformers does.
    ///
    /// # Errors
    /// Fails if there is no file, or if a file or the index is invalid.
    pub fn open(folder: &Path) -> Result<Self, SafetensorsError> {
        let (file, index) = (folder.join(FILE), folder.join(INDEX));
        if file.exists() {
            let file = Safetensors::open(&file)?;
            let by_name = file.names().map(|name| (name.to_owned(), 0)).collect();
            return Ok(Self { files: vec![file], by_name });
        }
        if !index.exists() {
            return Err(absent(folder));
        }
        Self::from_index(folder, &index)
    }

    fn from_index(folder: &Path, path: &Path) -> Result<Self, SafetensorsError> {
        let (mut numbers, mut names) = (HashMap::new(), Vec::new());
        let mut by_name = HashMap::new();
        for (tensor, file) in read_index(path)? {
            let number = *numbers.entry(file).or_insert_with_key(|file: &String| {
                names.push(file.clone());
                names.len() - 1
            });
            by_name.insert(tensor, number);
        }
        if names.len() > MAX_FILES {
            return Err(SafetensorsError::Files { path: path.to_owned(), count: names.len(), limit: MAX_FILES });
        }
        if let Some(file) = names.iter().find(|name| !is_plain(name)) {
            return Err(SafetensorsError::FileName { path: path.to_owned(), file: file.clone() });
        }
        let files = names.iter().map(|name| Safetensors::open(&folder.join(name))).collect::<Result<_, _>>()?;
        Ok(Self { files, by_name })
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
    let pickled = names.filter_map(|name| name.into_string().ok()).filter(|name| is_pickled(name));
    match pickled.min() {
        Some(file) => SafetensorsError::Pickled { path, file },
        None => SafetensorsError::None { path },
    }
}

fn read_index(path: &Path) -> Result<BTreeMap<String, String>, SafetensorsError> {
    let text =
        read_file(path, MAX_INDEX_BYTES).map_err(|source| SafetensorsError::Open { path: path.to_owned(), source })?;
    let index: Index = parse(&text).map_err(|source| SafetensorsError::Index { path: path.to_owned(), source })?;
    Ok(index.weight_map)
}

/// Returns true if the name has no folder in it.
fn is_plain(name: &str) -> bool {
    let mut components = Path::new(name).components();
    matches!(components.next(), Some(Component::Normal(only)) if only == name) && components.next().is_none()
}

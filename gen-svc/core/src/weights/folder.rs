//! A Hugging Face folder: tensors in safetensors files, by their names in the files.

use std::collections::HashSet;
use std::path::Path;

use parking_lot::Mutex;

use tandem_model_files::artifacts::safetensors::{Checkpoint, TensorView};
use tandem_model_files::gguf::GgmlType;

use super::stored::{RowOrder, Stored, TensorSource};
use crate::error::LoadError;

/// The dtypes of weights that can be served.
const DTYPES: &[(&str, GgmlType)] = &[("F32", GgmlType::F32), ("F16", GgmlType::F16), ("BF16", GgmlType::BF16)];

/// Prefixes that replace `model.`: in a model of several modalities, in older and in newer folders, and in a
/// folder of a model without a head.
const INNER: &[&str] = &["language_model.model.", "model.language_model.", "model.text_model.", ""];

/// The prefix of the head in a model of several modalities, in older folders.
const INNER_HEAD: &str = "language_model.";

/// Prefixes of towers in the architectures' files, and others that folders have.
const TOWERS: &[(&str, &str)] = &[
    ("vision_tower.vision_model.", "vision_tower."),
    ("vision_tower.vision_model.", "model.vision_tower.vision_model."),
    ("vision_tower.vision_model.", "model.vision_tower."),
    ("vision_tower.", "model.vision_tower."),
    ("multi_modal_projector.", "model.multi_modal_projector."),
    ("visual.", "model.visual."),
    ("model.visual.", "visual."),
];

/// A model in a folder.
#[derive(Debug)]
pub(super) struct FolderModel {
    checkpoint: Checkpoint,
    /// The names of the tensors that were asked for.
    read: Mutex<HashSet<String>>,
}

impl FolderModel {
    pub(super) fn open(folder: &Path) -> Result<Self, LoadError> {
        let checkpoint = Checkpoint::open(folder).map_err(|error| LoadError::Safetensors(Box::new(error)))?;
        Ok(Self { checkpoint, read: Mutex::default() })
    }

    /// Finds a tensor by its name, or by its name in a model of several modalities.
    fn find(&self, name: &str) -> Option<TensorView<'_>> {
        let inner = || {
            let Some(rest) = name.strip_prefix("model.") else {
                return self.read(&format!("{INNER_HEAD}{name}"));
            };
            INNER.iter().find_map(|prefix| self.read(&format!("{prefix}{rest}")))
        };
        self.read(name).or_else(inner).or_else(|| self.find_in_tower(name))
    }

    /// Returns a tensor by its name in the files.
    fn read(&self, name: &str) -> Option<TensorView<'_>> {
        let found = self.checkpoint.tensor(name)?;
        self.read.lock().insert(name.to_owned());
        Some(found)
    }

    /// Finds a tensor of a tower by another prefix.
    fn find_in_tower(&self, name: &str) -> Option<TensorView<'_>> {
        let renamed =
            TOWERS.iter().filter_map(|(prefix, other)| Some(format!("{other}{}", name.strip_prefix(prefix)?)));
        renamed.into_iter().find_map(|name| self.read(&name))
    }
}

impl TensorSource for FolderModel {
    fn stored(&self, name: &str) -> Result<Stored<'_>, LoadError> {
        let TensorView { dtype, shape, data } =
            self.find(name).ok_or_else(|| LoadError::TensorMissing { name: name.to_owned() })?;
        let known = DTYPES.iter().find(|(known, _)| *known == dtype);
        let unreadable = || LoadError::TensorType { name: name.to_owned(), found: dtype.to_owned() };
        let (_, dtype) = known.ok_or_else(unreadable)?;
        Ok(Stored::new(name.to_owned(), *dtype, shape, data, RowOrder::AsIs))
    }

    fn unread(&self) -> Vec<String> {
        let read = self.read.lock();
        self.checkpoint.names().filter(|name| !read.contains(*name)).map(str::to_owned).collect()
    }

    fn bytes(&self) -> u64 {
        let tensors = self.checkpoint.names().filter_map(|name| self.checkpoint.tensor(name));
        tensors.map(|tensor| tensor.data.len() as u64).sum()
    }
}

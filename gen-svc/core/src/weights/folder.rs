//! A Hugging Face folder: tensors in safetensors files, by their names in the files.

use std::path::Path;

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
    ("image_newline", "model.image_newline"),
    ("visual.", "model.visual."),
    ("model.visual.", "visual."),
];

/// A model in a folder.
#[derive(Debug)]
pub(super) struct FolderModel {
    checkpoint: Checkpoint,
}

impl FolderModel {
    pub(super) fn open(folder: &Path) -> Result<Self, LoadError> {
        let checkpoint = Checkpoint::open(folder).map_err(|error| LoadError::Safetensors(Box::new(error)))?;
        Ok(Self { checkpoint })
    }

    /// Finds a tensor by its name, or by its name in a model of several modalities. Returns its name in the files.
    fn find(&self, name: &str) -> Option<(String, TensorView<'_>)> {
        let inner = || match name.strip_prefix("model.") {
            None => self.named(format!("{INNER_HEAD}{name}")),
            Some(rest) => INNER.iter().find_map(|prefix| self.named(format!("{prefix}{rest}"))),
        };
        self.named(name.to_owned()).or_else(inner).or_else(|| self.find_in_tower(name))
    }

    fn named(&self, name: String) -> Option<(String, TensorView<'_>)> {
        let found = self.checkpoint.tensor(&name)?;
        Some((name, found))
    }

    /// Finds a tensor of a tower by another prefix.
    fn find_in_tower(&self, name: &str) -> Option<(String, TensorView<'_>)> {
        let renamed =
            TOWERS.iter().filter_map(|(prefix, other)| Some(format!("{other}{}", name.strip_prefix(prefix)?)));
        renamed.into_iter().find_map(|name| self.named(name))
    }
}

impl TensorSource for FolderModel {
    fn stored(&self, name: &str) -> Result<Stored<'_>, LoadError> {
        let (name, TensorView { dtype, shape, data }) =
            self.find(name).ok_or_else(|| LoadError::TensorMissing { name: name.to_owned() })?;
        let known = DTYPES.iter().find(|(known, _)| *known == dtype);
        let unreadable = || LoadError::TensorType { name: name.clone(), found: dtype.to_owned() };
        let (_, dtype) = known.ok_or_else(unreadable)?;
        Ok(Stored::new(name.clone(), *dtype, shape, data, RowOrder::AsIs))
    }

    fn names(&self) -> Vec<String> {
        self.checkpoint.names().map(str::to_owned).collect()
    }

    fn bytes(&self) -> u64 {
        let tensors = self.checkpoint.names().filter_map(|name| self.checkpoint.tensor(name));
        tensors.map(|tensor| tensor.data.len() as u64).sum()
    }
}

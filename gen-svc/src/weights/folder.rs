//! A Hugging Face folder: tensors in safetensors files, under the names that they have there.

use std::path::Path;

use tandem_model_files::artifacts::gguf::GgmlType;
use tandem_model_files::artifacts::safetensors::{Checkpoint, TensorView};

use super::{RowOrder, Source, Stored};
use crate::error::Error;

/// The dtypes that weights are served from.
const DTYPES: &[(&str, GgmlType)] = &[("F32", GgmlType::F32), ("F16", GgmlType::F16), ("BF16", GgmlType::BF16)];

/// What comes instead of `model.` before the tensors of a model of several modalities: in older folders, and in newer ones.
const INNER: &[&str] = &["language_model.model.", "model.language_model."];

/// A folder with a model in it.
#[derive(Debug)]
pub(super) struct FolderModel {
    checkpoint: Checkpoint,
}

impl FolderModel {
    pub(super) fn open(folder: &Path) -> Result<Self, Error> {
        let checkpoint = Checkpoint::open(folder).map_err(|error| Error::Safetensors(Box::new(error)))?;
        Ok(Self { checkpoint })
    }

    /// A tensor by its name, or by the one that it has in a model of several modalities.
    fn find(&self, name: &str) -> Option<TensorView<'_>> {
        let inner = || {
            let rest = name.strip_prefix("model.")?;
            INNER.iter().find_map(|prefix| self.checkpoint.tensor(&format!("{prefix}{rest}")))
        };
        self.checkpoint.tensor(name).or_else(inner)
    }
}

impl Source for FolderModel {
    fn stored(&self, name: &str) -> Result<Stored<'_>, Error> {
        let TensorView { dtype, shape, data } =
            self.find(name).ok_or_else(|| Error::TensorMissing { name: name.to_owned() })?;
        let known = DTYPES.iter().find(|(known, _)| *known == dtype);
        let unreadable = || Error::TensorType { name: name.to_owned(), found: dtype.to_owned() };
        let (_, dtype) = known.ok_or_else(unreadable)?;
        Ok(Stored { name: name.to_owned(), dtype: *dtype, shape: shape.to_vec(), bytes: data, order: RowOrder::AsIs })
    }
}

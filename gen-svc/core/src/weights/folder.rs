//! A Hugging Face folder: tensors in safetensors files, by their names in the files.

use std::path::Path;

use tandem_model_files::FileBytes;
use tandem_model_files::artifacts::safetensors::{Checkpoint, TensorView};
use tandem_model_files::gguf::GgmlType;

use super::stored::{RowOrder, Stored, TensorSource};
use crate::error::LoadError;

/// The dtypes of weights that can be served.
const DTYPES: &[(&str, GgmlType)] = &[("F32", GgmlType::F32), ("F16", GgmlType::F16), ("BF16", GgmlType::BF16)];

/// The remedy for weights of F64.
const OF_DOUBLES: &str = "F32, F16 and BF16 are: AutoModelForCausalLM.from_pretrained(FOLDER, dtype=\"bfloat16\")\
                          .save_pretrained(FOLDER) of transformers converts it";
/// The remedy for weights of other dtypes.
const OF_OTHERS: &str = "F32, F16 and BF16 are";

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

/// The tensors below `mlp.experts` that have a matrix of every expert, or several one above the other, as
/// transformers 5 has them in memory: `[experts, rows, columns]`. Usual folders have a tensor for each matrix.
const STACKED: &[(&str, &[&str])] = &[("gate_up_proj", &["gate_proj", "up_proj"]), ("down_proj", &["down_proj"])];

const EXPERTS: &str = ".mlp.experts.";
/// The most experts of a stacked tensor.
const MAX_EXPERTS: usize = 4096;

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

    /// Finds a matrix of an expert in a stacked tensor. Returns the name that it has in usual folders.
    fn expert(&self, name: &str) -> Option<(String, &str, Vec<usize>, FileBytes<'_>)> {
        let (path, rest) = name.split_once(EXPERTS)?;
        let (index, matrix) = rest.strip_suffix(".weight")?.split_once('.')?;
        let (stacked, matrices) = STACKED.iter().find(|(_, matrices)| matrices.contains(&matrix))?;
        let (found, TensorView { dtype, shape, data }) = self.find(&format!("{path}{EXPERTS}{stacked}"))?;
        let (count, rows, columns) = sizes(shape, matrices.len())?;
        let index = index.parse::<usize>().ok().filter(|index| *index < count)?;
        let size = data.len() / (count * matrices.len());
        let place = index * matrices.len() + matrices.iter().position(|name| *name == matrix)?;
        let name = format!("{}{index}.{matrix}.weight", found.strip_suffix(stacked)?);
        Some((name, dtype, vec![rows, columns], data.part(place * size..(place + 1) * size)))
    }

    /// Returns the names that the matrices of a tensor have in usual folders. A stacked tensor beside one of its
    /// matrices has no other name.
    fn usual_names(&self, name: &str) -> Vec<String> {
        let matrices = || {
            let (path, stacked) = name.rsplit_once('.').filter(|(path, _)| format!("{path}.").ends_with(EXPERTS))?;
            let (_, matrices) = STACKED.iter().find(|(known, _)| *known == stacked)?;
            let (count, ..) = sizes(self.checkpoint.tensor(name)?.shape, matrices.len())?;
            let of_expert = |index| matrices.iter().map(move |matrix| format!("{path}.{index}.{matrix}.weight"));
            let names: Vec<_> = (0..count).flat_map(of_expert).collect();
            names.iter().all(|name| self.checkpoint.tensor(name).is_none()).then_some(names)
        };
        matrices().unwrap_or_else(|| vec![name.to_owned()])
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

/// Returns the number of experts of a stacked tensor, and the rows and columns of each of its matrices.
fn sizes(shape: &[usize], matrices: usize) -> Option<(usize, usize, usize)> {
    match *shape {
        [count @ 1..=MAX_EXPERTS, rows, columns] if rows.is_multiple_of(matrices) => {
            Some((count, rows / matrices, columns))
        }
        _ => None,
    }
}

impl TensorSource for FolderModel {
    fn stored(&self, name: &str) -> Result<Stored<'_>, LoadError> {
        let whole =
            self.find(name).map(|(name, TensorView { dtype, shape, data })| (name, dtype, shape.to_vec(), data));
        let found = whole.or_else(|| self.expert(name));
        let (name, dtype, shape, data) = found.ok_or_else(|| LoadError::TensorMissing { name: name.to_owned() })?;
        let known = DTYPES.iter().find(|(known, _)| *known == dtype);
        let remedy = if dtype == "F64" { OF_DOUBLES } else { OF_OTHERS };
        let unreadable = || LoadError::TensorType { name: name.clone(), found: dtype.to_owned(), remedy };
        let (_, dtype) = known.ok_or_else(unreadable)?;
        Ok(Stored::new(name.clone(), *dtype, &shape, data, RowOrder::AsIs))
    }

    fn names(&self) -> Vec<String> {
        self.checkpoint.names().flat_map(|name| self.usual_names(name)).collect()
    }

    fn bytes(&self) -> u64 {
        let tensors = self.checkpoint.names().filter_map(|name| self.checkpoint.tensor(name));
        tensors.map(|tensor| tensor.data.len() as u64).sum()
    }
}

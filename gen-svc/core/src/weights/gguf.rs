//! A GGUF file, read as the checkpoint that it was converted from: tensors by their names in
//! transformers, rows in the model's order. This module has only the names that all
//! architectures share. Other names are in a [`GgufArchitecture`]. The tower of a model is in a second
//! file ([`mmproj`]).

pub mod architecture;
pub(super) mod config;
pub mod header;
mod keys;
pub(super) mod mmproj;
pub(super) mod mmproj_config;
mod names;
pub mod projector;
mod rope;

use super::stored::{RowOrder, Stored, TensorSource};
use crate::error::LoadError;
use architecture::GgufArchitecture;
use header::GgufHeader;
pub(crate) use mmproj_config::{projector_name, refused, row_size};
use names::Place;

/// Tensors whose rows may be interleaved, and the metadata key of their number of heads.
const ROTATED_TENSORS: &[(&str, &str)] =
    &[("self_attn.q_proj", "attention.head_count"), ("self_attn.k_proj", "attention.head_count_kv")];

/// Modules that may have a bias in every architecture.
const QUERIES_KEYS_VALUES: &[&str] = &["self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj"];

/// A model in a GGUF file.
#[derive(Debug)]
pub(super) struct GgufModel {
    header: GgufHeader,
    architecture: GgufArchitecture,
}

impl GgufModel {
    pub(super) fn new(header: GgufHeader, architecture: GgufArchitecture) -> Self {
        Self { header, architecture }
    }

    /// Fails unless the tensor of all experts has as many as the header states.
    fn check_experts(&self, name: &str, dims: &[usize]) -> Result<(), LoadError> {
        let stated = self.header.find::<u32>("expert_count")?.map_or(0, |count| count as usize);
        if dims[0] == stated {
            return Ok(());
        }
        let found: Vec<i64> = dims.iter().map(|size| *size as i64).collect();
        let expected = [&[stated as i64], &found[1..]].concat();
        Err(LoadError::TensorShape { name: name.to_owned(), expected, found })
    }

    /// Returns the order of a tensor's rows.
    fn order(&self, name: &str) -> Result<RowOrder, LoadError> {
        let tensor = ROTATED_TENSORS.iter().find(|(part, _)| name.contains(&format!(".{part}.")));
        let Some((_, key)) = tensor.filter(|_| self.architecture.interleaved) else {
            return Ok(RowOrder::AsIs);
        };
        let heads = match self.header.find_of_layers(key)? {
            Some(heads) => Some(heads),
            None => self.header.find_of_layers("attention.head_count")?,
        };
        Ok(heads.map_or(RowOrder::AsIs, |heads| RowOrder::Interleaved { heads: heads as usize }))
    }
}

impl TensorSource for GgufModel {
    fn stored(&self, name: &str) -> Result<Stored<'_>, LoadError> {
        let Place { name: stored, expert } = names::place(&self.architecture, name);
        let missing = || LoadError::TensorMissing { name: stored.clone() };
        let info = self.header.file().tensor(&stored).ok_or_else(missing)?;
        let (shape, bytes) = match (expert, info.dims) {
            (None, shape) => (shape, info.data),
            (Some(expert), [count, shape @ ..]) if expert < *count => {
                self.check_experts(&stored, info.dims)?;
                let size = info.data.len() / count;
                (shape, info.data.part(expert * size..(expert + 1) * size))
            }
            (Some(_), _) => return Err(missing()),
        };
        let order = self.order(name)?;
        Ok(Stored::new(stored, info.dtype, shape, bytes, order))
    }

    fn bias(&self, module: &str) -> Option<bool> {
        let part = module.strip_prefix("model.layers.").and_then(|rest| rest.split_once('.')).map_or(module, |it| it.1);
        let may_have_bias = QUERIES_KEYS_VALUES.contains(&part) || self.architecture.biases.contains(&part);
        let Place { name, .. } = names::place(&self.architecture, &format!("{module}.bias"));
        may_have_bias.then(|| self.header.file().tensor(&name).is_some())
    }

    fn names(&self) -> Vec<String> {
        let names = self.header.file().tensors().map(|tensor| tensor.name);
        names.filter(|name| !self.header.is_setting(name)).map(str::to_owned).collect()
    }

    fn bytes(&self) -> u64 {
        self.header.tensor_bytes()
    }
}

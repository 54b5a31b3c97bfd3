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
use tandem_model_files::gguf::TensorInfo;

/// Tensors whose rows may be interleaved, and the metadata key of their number of heads.
const ROTATED_TENSORS: &[(&str, &str)] =
    &[("self_attn.q_proj", "attention.head_count"), ("self_attn.k_proj", "attention.head_count_kv")];

/// The parts of the names of queries, keys and values, and of the tensor that may have all of them.
const PARTS: [&str; 3] = [".attn_q.", ".attn_k.", ".attn_v."];
const JOINED: &str = ".attn_qkv.";

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

    /// Returns the tensor that has queries, keys and values, if the file has none of them alone, and the index of the
    /// part that is asked for.
    fn joined(&self, name: &str) -> Option<(TensorInfo<'_>, usize)> {
        let mut parts = PARTS.iter().enumerate();
        let (index, (layer, kind)) = parts.find_map(|(index, part)| Some((index, name.split_once(part)?)))?;
        let named = |part: &str, kind: &str| self.header.file().tensor(&format!("{layer}{part}{kind}"));
        let joined = named(JOINED, kind)?;
        let has = |part| [kind, "weight"].iter().any(|kind| named(part, kind).is_some());
        (!PARTS.into_iter().any(has)).then_some((joined, index))
    }

    /// Returns queries, keys or values as a part of the tensor that has all of them. llama.cpp reads it in every
    /// architecture. It has no order yet.
    fn part(&self, name: &str) -> Result<Option<Stored<'_>>, LoadError> {
        let Some((TensorInfo { name, dims, dtype, data }, index)) = self.joined(name) else { return Ok(None) };
        let size = self.header.head_size()? as usize;
        let heads = |key| Ok::<_, LoadError>(self.header.find_of_layers(key)?.map(|heads| heads as usize));
        let queries = heads("attention.head_count")?.unwrap_or(0);
        let pairs = heads("attention.head_count_kv")?.unwrap_or(queries);
        let rows = [queries, pairs, pairs].map(|heads| heads.saturating_mul(size));
        let total = rows.iter().fold(0_usize, |total, rows| total.saturating_add(*rows));
        if dims.first() != Some(&total) || total == 0 || !data.len().is_multiple_of(total) {
            let whole = |dims: &[usize]| dims.iter().map(|size| *size as i64).collect::<Vec<_>>();
            let expected = [&[total as i64], &whole(dims)[1.min(dims.len())..]].concat();
            return Err(LoadError::TensorShape { name: name.to_owned(), expected, found: whole(dims) });
        }
        let (start, row_bytes) = (rows[..index].iter().sum::<usize>(), data.len() / total);
        let part = data.part(start * row_bytes..(start + rows[index]) * row_bytes);
        let shape = [&[rows[index]], &dims[1..]].concat();
        Ok(Some(Stored::new(name.to_owned(), dtype, &shape, part, RowOrder::AsIs)))
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
        let Some(info) = self.header.file().tensor(&stored) else {
            let part = self.part(&stored)?.ok_or_else(missing)?;
            return Ok(Stored { order: self.order(name)?, ..part });
        };
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
        may_have_bias.then(|| self.header.file().tensor(&name).or_else(|| Some(self.joined(&name)?.0)).is_some())
    }

    fn names(&self) -> Vec<String> {
        let layers = |may_draft| self.header.layers(may_draft).unwrap_or(0);
        let drafting = layers(self.architecture.has_draft_layers)..layers(false);
        let is_drafting = |name: &str| {
            let layer = name.strip_prefix("blk.").and_then(|rest| rest.split_once('.')?.0.parse::<u32>().ok());
            layer.is_some_and(|layer| drafting.contains(&layer))
        };
        let names = self.header.file().tensors().map(|tensor| tensor.name);
        names.filter(|name| !self.header.is_setting(name) && !is_drafting(name)).map(str::to_owned).collect()
    }

    fn bytes(&self) -> u64 {
        self.header.tensor_bytes()
    }
}

//! A GGUF file read as the checkpoint that it was converted from: tensors under their names there, rows in their order there.

use std::sync::Arc;

use tandem_model_files::artifacts::gguf::{FromValue, Gguf, GgufError};

use super::gguf_names::{Place, place};
use super::{RowOrder, Source, Stored};
use crate::error::Error;

/// Architectures whose query and key rows the converter interleaves.
const INTERLEAVED: &[&str] = &["llama", "granite", "smollm3"];

/// Tensors with interleaved rows, and the metadata key of their number of heads.
const INTERLEAVED_TENSORS: &[(&str, &str)] =
    &[("self_attn.q_proj", "attention.head_count"), ("self_attn.k_proj", "attention.head_count_kv")];

/// A GGUF file with a model in it.
#[derive(Debug)]
pub(super) struct GgufModel {
    gguf: Arc<Gguf>,
    architecture: String,
}

impl GgufModel {
    pub(super) fn new(gguf: Arc<Gguf>) -> Result<Self, GgufError> {
        let architecture = gguf.get::<&str>("general.architecture")?.to_owned();
        Ok(Self { gguf, architecture })
    }

    /// Such as `qwen3moe`.
    pub(super) fn architecture(&self) -> &str {
        &self.architecture
    }

    /// The file.
    pub(super) fn file(&self) -> &Gguf {
        &self.gguf
    }

    /// A setting that may be absent, by its key after the architecture's name.
    pub(super) fn find<'a, T: FromValue<'a>>(&'a self, key: &str) -> Result<Option<T>, GgufError> {
        self.gguf.find(&format!("{}.{key}", self.architecture))
    }

    /// How a tensor's rows are ordered.
    fn order(&self, name: &str) -> Result<RowOrder, Error> {
        let tensor = INTERLEAVED_TENSORS.iter().find(|(part, _)| name.contains(&format!(".{part}.")));
        let Some((_, key)) = tensor.filter(|_| INTERLEAVED.contains(&self.architecture.as_str())) else {
            return Ok(RowOrder::AsIs);
        };
        let heads = match self.find::<u32>(key).map_err(super::header)? {
            Some(heads) => Some(heads),
            None => self.find("attention.head_count").map_err(super::header)?,
        };
        Ok(heads.map_or(RowOrder::AsIs, |heads| RowOrder::Interleaved { heads: heads as usize }))
    }
}

impl Source for GgufModel {
    fn stored(&self, name: &str) -> Result<Stored<'_>, Error> {
        let Place { name: stored, expert } = place(&self.architecture, name);
        let missing = || Error::TensorMissing { name: stored.clone() };
        let info = self.gguf.tensor(&stored).ok_or_else(missing)?;
        let (shape, bytes) = match (expert, info.dims) {
            (None, shape) => (shape, info.data),
            (Some(expert), [count, shape @ ..]) if expert < *count => {
                let size = info.data.len() / count;
                (shape, &info.data[expert * size..][..size])
            }
            (Some(_), _) => return Err(missing()),
        };
        let order = self.order(name)?;
        Ok(Stored { name: stored, dtype: info.dtype, shape: shape.to_vec(), bytes, order })
    }
}

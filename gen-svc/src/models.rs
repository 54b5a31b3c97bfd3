//! What the engine asks of a model, and the architectures there are.

use serde_json::Value;
use tch::Tensor;

use crate::cache::{CacheShape, KvCache};
use crate::error::Error;
use crate::weights::{ModelFile, Placement, Weights};

pub mod llama;

/// A causal language model. Shapes: L tokens of one sequence, E hidden size, V vocabulary.
pub trait Model: std::fmt::Debug {
    /// What its caches must hold.
    fn cache_shape(&self) -> CacheShape;

    /// V.
    fn vocabulary(&self) -> usize;

    /// Computes the tokens that follow those in `cache`, and adds them to it: `[L] -> [L, E]`
    ///
    /// Preconditions: every id is below V, and the cache's context has room for L more.
    ///
    /// # Errors
    /// libtorch's. The cache is then of no more use.
    fn forward(&self, ids: &Tensor, cache: &mut KvCache) -> Result<Tensor, Error>;

    /// What may come next, not normalized: `[L, E] -> [L, V]`
    ///
    /// # Errors
    /// libtorch's.
    fn logits(&self, hidden: &Tensor) -> Result<Tensor, Error>;
}

/// Reads a model's config and tensors.
type Load = fn(&Value, &Weights<'_>) -> Result<Box<dyn Model>, Error>;

/// An implementation, by the name that `model_type` and `general.architecture` give it.
struct Architecture {
    name: &'static str,
    load: Load,
}

const ARCHITECTURES: &[Architecture] = &[Architecture { name: "llama", load: llama::load }];

/// Loads the model in `file` with its registered implementation.
///
/// # Errors
/// The architecture or one of its settings is not supported, or a tensor is missing or misshapen.
pub fn load(file: &ModelFile, placement: Placement) -> Result<Box<dyn Model>, Error> {
    let found = file.architecture();
    let architecture = ARCHITECTURES.iter().find(|architecture| architecture.name == found);
    let architecture = architecture.ok_or_else(|| Error::UnsupportedArchitecture {
        found: found.to_owned(),
        supported: ARCHITECTURES.iter().map(|architecture| architecture.name).collect::<Vec<_>>().join(", "),
    })?;
    (architecture.load)(file.config(), &Weights::new(file, placement))
}

/// Refuses a setting that has a value other than `supported`. Missing and null pass.
fn require(config: &Value, setting: &'static str, supported: &Value) -> Result<(), Error> {
    match &config[setting] {
        Value::Null => Ok(()),
        value if value == supported => Ok(()),
        value => Err(Error::UnsupportedSetting { setting, value: value.to_string() }),
    }
}

/// Refuses a size that no real model has, before anything is computed from it.
fn require_size(setting: &'static str, value: i64) -> Result<(), Error> {
    const LARGEST: i64 = 1 << 24;
    if (1..=LARGEST).contains(&value) {
        return Ok(());
    }
    Err(Error::UnsupportedSetting { setting, value: value.to_string() })
}

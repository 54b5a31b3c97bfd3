//! A model in two GGUF files: the language model, and its tower.

use super::gguf::GgufModel;
use super::gguf::mmproj::MmprojModel;
use super::stored::{Stored, TensorSource};
use crate::error::LoadError;

/// A language model and its tower.
#[derive(Debug)]
pub(super) struct GgufPair {
    pub(super) text: GgufModel,
    pub(super) tower: MmprojModel,
}

impl TensorSource for GgufPair {
    fn stored(&self, name: &str) -> Result<Stored<'_>, LoadError> {
        self.tower.stored(name).unwrap_or_else(|| self.text.stored(name))
    }

    fn bias(&self, module: &str) -> Option<bool> {
        self.text.bias(module)
    }

    fn names(&self) -> Vec<String> {
        self.text.names()
    }

    fn tower_names(&self) -> Vec<String> {
        self.tower.names()
    }

    fn bytes(&self) -> u64 {
        self.tower.bytes() + self.text.bytes()
    }
}

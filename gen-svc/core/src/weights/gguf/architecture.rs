//! The part of a GGUF file that differs between architectures, as data.

use serde_json::{Map, Value};

use super::header::GgufHeader;
use crate::error::LoadError;

/// A name in transformers, and the name in GGUF.
pub type Name = (&'static str, &'static str);

/// A config under the names of `config.json`.
pub type ConfigMap = Map<String, Value>;

/// A test of a file.
pub type Condition = fn(&GgufHeader) -> Result<bool, LoadError>;

/// How GGUF files store one architecture, besides the names that all architectures share.
#[derive(Debug, Clone, Copy)]
pub struct GgufArchitecture {
    /// The value of `general.architecture`.
    pub name: &'static str,
    /// Selects the files of this architecture where several share a name. `None`: all other files.
    pub condition: Option<Condition>,
    /// True if the converter interleaves the rows of queries and keys.
    pub interleaved: bool,
    /// Whole numbers of the header: the setting, and the key after the architecture's name.
    pub integers: &'static [Name],
    /// Other numbers of the header: the setting, and the key after the architecture's name.
    pub floats: &'static [Name],
    /// Modules in a layer: below `model.layers.N`, and below `blk.N`. They precede shared names.
    pub layer_tensors: &'static [Name],
    /// Matrices of an expert: below `mlp.experts.E`, and the tensor that stacks all experts.
    pub expert_tensors: &'static [Name],
    /// Adds settings that the header implies.
    pub add_implied: fn(&GgufHeader, &mut ConfigMap) -> Result<(), LoadError>,
}

impl GgufArchitecture {
    /// Returns an architecture with the shared names only.
    #[must_use]
    pub const fn named(name: &'static str) -> Self {
        Self {
            name,
            condition: None,
            interleaved: false,
            integers: &[],
            floats: &[],
            layer_tensors: &[],
            expert_tensors: &[],
            add_implied: |_, _| Ok(()),
        }
    }

    /// Returns true if the file is of this architecture.
    ///
    /// # Errors
    /// A value that the condition reads has the wrong type.
    pub fn is_of(&self, header: &GgufHeader) -> Result<bool, LoadError> {
        let is_met = |condition: Condition| condition(header);
        Ok(self.name == header.architecture() && self.condition.map_or(Ok(true), is_met)?)
    }
}

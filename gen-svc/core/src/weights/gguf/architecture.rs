//! The part of a GGUF file that differs between architectures, as data.

use serde_json::{Map, Value};

use super::header::GgufHeader;
use crate::error::LoadError;

/// A name in transformers, and the name in GGUF.
pub type Name = (&'static str, &'static str);

/// A config under the names of `config.json`.
pub type ConfigMap = Map<String, Value>;

/// The setting that states that llama.cpp's converter changed the tensors.
pub(crate) const CONVERTED: &str = "gguf.converted";

/// A test of a file.
pub type Condition = fn(&GgufHeader) -> Result<bool, LoadError>;

/// The tensors that divide the rotary frequencies of an architecture. The others are refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Divisors {
    /// There are none.
    None,
    /// `rope_factors_short` and `rope_factors_long` if the scaling is `longrope`, else `rope_freqs`.
    OfScaling,
    /// `rope_factors_short` and `rope_factors_long`, with any scaling.
    ShortAndLong,
}

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
    /// True if every layer has the window that the header names. False: the architecture reads the
    /// key itself, or has no windows.
    pub has_window: bool,
    /// True if a part of each head may be rotated.
    pub has_partial_rotation: bool,
    /// Keys after the architecture's name that have no effect, as in llama.cpp.
    pub ignored: &'static [&'static str],
    /// Keys that have an effect only in this architecture.
    pub decisive: &'static [&'static str],
    /// Modules that may have a bias, in addition to queries, keys and values: `lm_head`, or below
    /// `model.layers.N`. Each file and layer decides.
    pub biases: &'static [&'static str],
    /// The tensors that divide rotary frequencies.
    pub divisors: Divisors,
    /// True if the last layers of a file may be a module that drafts tokens, which is not loaded.
    pub has_draft_layers: bool,
    /// Modules in a layer: below `model.layers.N`, and below `blk.N`. They precede shared names, and the first list the
    /// others.
    pub layer_tensors: &'static [&'static [Name]],
    /// Tensors in a layer whose names do not end in `weight` or `bias`, in the same way.
    pub layer_vectors: &'static [Name],
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
            has_window: false,
            has_partial_rotation: false,
            ignored: &[],
            decisive: &[],
            biases: &[],
            divisors: Divisors::None,
            has_draft_layers: false,
            layer_tensors: &[],
            layer_vectors: &[],
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

//! The row of an architecture.

use super::config::{Config, ConfigError};
use super::decoder::Decoder;
use crate::weights::gguf::architecture::GgufArchitecture;

/// The end of the name of a language model that is a part of another architecture.
pub(super) const PART: &str = "_text";

/// A supported architecture.
#[derive(Debug, Clone, Copy)]
pub(super) struct Architecture {
    /// The `model_type` in `config.json`.
    pub(super) name: &'static str,
    /// Describes the model of a config.
    pub(super) describe: fn(&Config<'_>) -> Result<Decoder, ConfigError>,
    /// How GGUF files store the architecture. `None`: a GGUF file is of another row.
    pub(super) gguf: Option<GgufArchitecture>,
}

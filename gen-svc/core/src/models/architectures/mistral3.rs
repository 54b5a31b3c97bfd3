//! Mistral 3: the language model is Mistral. Reference: transformers,
//! `models/mistral3/modeling_mistral3.py`.

use super::mistral;
use crate::models::architecture::Architecture;
use crate::models::composite;
use crate::models::config::{Config, ConfigError};
use crate::models::decoder::Decoder;

/// This architecture's row in [`ARCHITECTURES`](super::ARCHITECTURES).
pub(super) const ARCHITECTURE: Architecture = Architecture { name: "mistral3", describe, gguf: None };

fn describe(config: &Config<'_>) -> Result<Decoder, ConfigError> {
    composite::describe(config, &[mistral::ARCHITECTURE])
}

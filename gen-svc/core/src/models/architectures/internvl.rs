//! InternVL: the language model is Qwen 2, Qwen 3 or Llama. Reference: transformers,
//! `models/internvl/modeling_internvl.py`.

use super::{llama, qwen2, qwen3};
use crate::models::architecture::Architecture;
use crate::models::composite;
use crate::models::config::{Config, ConfigError};
use crate::models::decoder::Decoder;

/// This architecture's row in [`ARCHITECTURES`](super::ARCHITECTURES).
pub(super) const ARCHITECTURE: Architecture = Architecture { name: "internvl", describe, gguf: None };

fn describe(config: &Config<'_>) -> Result<Decoder, ConfigError> {
    composite::describe(config, &[qwen2::ARCHITECTURE, qwen3::ARCHITECTURE, llama::ARCHITECTURE])
}

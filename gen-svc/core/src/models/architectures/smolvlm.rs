//! SmolVLM and Idefics 3: the language model is Llama. Reference: transformers,
//! `models/smolvlm/modeling_smolvlm.py` and `models/idefics3/modeling_idefics3.py`.

use super::llama;
use crate::models::architecture::Architecture;
use crate::models::composite;
use crate::models::config::{Config, ConfigError};
use crate::models::decoder::Decoder;

/// The row of SmolVLM.
pub(super) const SMOLVLM: Architecture = Architecture { name: "smolvlm", describe, gguf: None };

/// The row of Idefics 3.
pub(super) const IDEFICS3: Architecture = Architecture { name: "idefics3", describe, gguf: None };

fn describe(config: &Config<'_>) -> Result<Decoder, ConfigError> {
    composite::describe(config, &[llama::ARCHITECTURE])
}

//! SmolVLM and Idefics 3: the language model is Llama. Reference: transformers,
//! `models/smolvlm/modeling_smolvlm.py` and `models/idefics3/modeling_idefics3.py`.

use super::llama::{self, Defaults};
use crate::models::architecture::Architecture;
use crate::models::composite;
use crate::models::config::{Config, ConfigError};
use crate::models::decoder::Decoder;

/// Values of settings that the config leaves out, as the configs of published models do.
const DEFAULTS: Defaults = Defaults {
    hidden: Some(4096),
    feed_forward: Some(11_008),
    layers: Some(32),
    heads: Some(32),
    vocabulary: Some(32_000),
    context: Some(2048),
    ..llama::DEFAULTS
};

const TEXT: Architecture = Architecture { describe: |config| llama::decoder(config, &DEFAULTS), ..llama::ARCHITECTURE };

/// The row of SmolVLM.
pub(super) const SMOLVLM: Architecture = Architecture { name: "smolvlm", describe, gguf: None };

/// The row of Idefics 3.
pub(super) const IDEFICS3: Architecture = Architecture { name: "idefics3", describe, gguf: None };

fn describe(config: &Config<'_>) -> Result<Decoder, ConfigError> {
    composite::describe(config, &[TEXT])
}

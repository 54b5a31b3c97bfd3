//! Qwen 3.5's language model as a mixture of experts. Reference: transformers,
//! `models/qwen3_5_moe/modeling_qwen3_5_moe.py`.

use super::llama::{self, Defaults};
use super::qwen3_5;
use super::qwen3_moe::{self, Mixture};
use crate::models::architecture::Architecture;
use crate::models::config::{Config, ConfigError};
use crate::models::decoder::Decoder;

/// Defaults of settings that are not in the config.
const DEFAULTS: Defaults = Defaults { hidden: 2048, layers: 40, kv_heads: Some(2), ..qwen3_5::DEFAULTS };

const MIXTURE: Mixture =
    Mixture { experts: 256, per_token: 8, size: 512, shared: Some(512), normalize: None, has_dense_layers: false };

/// The row of the language model.
pub(super) const TEXT: Architecture = Architecture { name: "qwen3_5_moe_text", describe, gguf: None };

/// The row of a whole model, of which the tower is not loaded.
pub(super) const WHOLE: Architecture = Architecture { name: "qwen3_5_moe", ..TEXT };

fn describe(config: &Config<'_>) -> Result<Decoder, ConfigError> {
    let mut decoder = llama::decoder(config, &DEFAULTS)?;
    qwen3_5::add_mixers(&mut decoder, config, qwen3_5::inputs)?;
    qwen3_moe::add_experts(&mut decoder, config, &MIXTURE)?;
    Ok(decoder)
}

//! Qwen 2.5 VL: Qwen 2 with positions of three axes. Reference: transformers,
//! `models/qwen2_5_vl/modeling_qwen2_5_vl.py`.

use super::llama::{self, Defaults};
use super::qwen2;
use crate::models::architecture::Architecture;
use crate::models::config::{Config, ConfigError};
use crate::models::decoder::Decoder;
use crate::models::rope::{self, Axes, RopeSetting};

const ROPE: RopeSetting = RopeSetting {
    default_theta: 1_000_000.0,
    axes: Some(Axes { interleaved: false, default: [16, 24, 24] }),
    ..rope::ONLY
};

/// Defaults of settings that are not in the config.
const DEFAULTS: Defaults =
    Defaults { epsilon: 1e-5, kv_heads: Some(8), context: Some(32_768), ropes: &[ROPE], ..llama::DEFAULTS };

/// The row of the model with images.
pub(super) const MULTIMODAL: Architecture = Architecture { name: "qwen2_5_vl", describe, gguf: None };

/// The row of the language model.
pub(super) const TEXT: Architecture = Architecture { name: "qwen2_5_vl_text", describe, gguf: None };

fn describe(config: &Config<'_>) -> Result<Decoder, ConfigError> {
    qwen2::decoder(config, &DEFAULTS)
}

//! Qwen 3: Llama with normalized queries and keys. Reference: transformers,
//! `models/qwen3/modeling_qwen3.py`.

use super::llama::{self, ATTENTION_BIAS, Defaults};
use super::qwen2::{self, FIRST_WITH_WINDOW};
use crate::models::architecture::Architecture;
use crate::models::config::{Config, ConfigError};
use crate::models::decoder::Decoder;
use crate::weights::gguf::architecture::GgufArchitecture;

/// Defaults of settings that are not in the config.
pub(super) const DEFAULTS: Defaults = Defaults { head_size: Some(128), biases: &[ATTENTION_BIAS], ..qwen2::DEFAULTS };

/// This architecture's row in [`ARCHITECTURES`](super::ARCHITECTURES).
pub(in crate::models) const ARCHITECTURE: Architecture = Architecture { name: "qwen3", describe, gguf: Some(GGUF) };

const GGUF: GgufArchitecture = GgufArchitecture { ignored: qwen2::GGUF_WINDOW, ..GgufArchitecture::named("qwen3") };

fn describe(config: &Config<'_>) -> Result<Decoder, ConfigError> {
    let mut decoder = llama::decoder(config, &DEFAULTS)?;
    llama::add_qk_norms(&mut decoder);
    qwen2::add_windows(&mut decoder, config, FIRST_WITH_WINDOW)?;
    Ok(decoder)
}

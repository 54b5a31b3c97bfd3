//! Qwen 2: Llama with biases on queries, keys and values. Reference: transformers,
//! `models/qwen2/modeling_qwen2.py`.

use super::llama::{self, Defaults};
use crate::models::architecture::Architecture;
use crate::models::config::{Config, ConfigError};
use crate::models::decoder::Decoder;
use crate::models::windows;
use crate::weights::gguf::architecture::GgufArchitecture;

/// The default first layer with a window.
const FIRST_WITH_WINDOW: usize = 28;

/// This architecture's row in [`ARCHITECTURES`](super::ARCHITECTURES).
pub(super) const ARCHITECTURE: Architecture = Architecture { name: "qwen2", describe, gguf: Some(GGUF) };

const GGUF: GgufArchitecture =
    GgufArchitecture { ignored: GGUF_WINDOW, biases: &["lm_head"], ..GgufArchitecture::named("qwen2") };

/// The key of the window, which llama.cpp ignores. The file does not name the layers with a window.
pub(super) const GGUF_WINDOW: &[&str] = &["attention.sliding_window"];

fn describe(config: &Config<'_>) -> Result<Decoder, ConfigError> {
    decoder(config, &llama::DEFAULTS)
}

/// Describes the model with other defaults.
pub(super) fn decoder(config: &Config<'_>, defaults: &Defaults) -> Result<Decoder, ConfigError> {
    let mut decoder = llama::decoder(config, defaults)?;
    for layer in &mut decoder.layers {
        layer.attention.qkv.iter_mut().for_each(|matrix| matrix.bias = true);
    }
    add_windows(&mut decoder, config)?;
    Ok(decoder)
}

/// Adds the windows of the Qwen architectures.
pub(super) fn add_windows(decoder: &mut Decoder, config: &Config<'_>) -> Result<(), ConfigError> {
    let window = if config.flag_or("use_sliding_window", false)? { config.find_size("sliding_window")? } else { None };
    let first = config.find_whole("max_window_layers")?.unwrap_or(FIRST_WITH_WINDOW);
    windows::add(decoder, config, window, |i| i >= first)
}

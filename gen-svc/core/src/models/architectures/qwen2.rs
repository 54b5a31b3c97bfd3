//! Qwen 2: Llama with biases on queries, keys and values. Reference: transformers,
//! `models/qwen2/modeling_qwen2.py`.

use super::llama::{self, Defaults};
use crate::models::architecture::Architecture;
use crate::models::config::{Config, ConfigError};
use crate::models::decoder::Decoder;
use crate::models::windows;
use crate::weights::gguf::architecture::GgufArchitecture;

/// Defaults of settings that are not in the config.
pub(super) const DEFAULTS: Defaults = Defaults {
    feed_forward: 22_016,
    kv_heads: Some(32),
    vocabulary: 151_936,
    context: 32_768,
    biases: &[],
    ..llama::DEFAULTS
};

/// The default first layer with a window.
pub(super) const FIRST_WITH_WINDOW: usize = 28;
const DEFAULT_WINDOW_TOKENS: usize = 4096;

/// This architecture's row in [`ARCHITECTURES`](super::ARCHITECTURES).
pub(in crate::models) const ARCHITECTURE: Architecture = Architecture { name: "qwen2", describe, gguf: Some(GGUF) };

const GGUF: GgufArchitecture =
    GgufArchitecture { ignored: GGUF_WINDOW, biases: &["lm_head"], ..GgufArchitecture::named("qwen2") };

/// The key of the window, which llama.cpp ignores. The file does not name the layers with a window.
pub(super) const GGUF_WINDOW: &[&str] = &["attention.sliding_window"];

fn describe(config: &Config<'_>) -> Result<Decoder, ConfigError> {
    decoder(config, &DEFAULTS, FIRST_WITH_WINDOW)
}

/// Describes the model with other defaults, also of the first layer with a window.
pub(super) fn decoder(config: &Config<'_>, defaults: &Defaults, first: usize) -> Result<Decoder, ConfigError> {
    let mut decoder = llama::decoder(config, defaults)?;
    decoder.attentions_mut().flat_map(|attention| &mut attention.qkv).for_each(|matrix| matrix.bias = true);
    add_windows(&mut decoder, config, first)?;
    Ok(decoder)
}

/// Adds the windows of the Qwen architectures. `first` is the default first layer with one.
pub(super) fn add_windows(decoder: &mut Decoder, config: &Config<'_>, first: usize) -> Result<(), ConfigError> {
    let window = window(config)?;
    let first = config.find_whole("max_window_layers")?.unwrap_or(first);
    windows::add(decoder, config, window, |i| i >= first)
}

/// Returns the window, if the model has one.
pub(super) fn window(config: &Config<'_>) -> Result<Option<usize>, ConfigError> {
    match config.flag_or("use_sliding_window", false)? {
        true => config.size_unless_null("sliding_window", DEFAULT_WINDOW_TOKENS),
        false => Ok(None),
    }
}

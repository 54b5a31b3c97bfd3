//! Mistral: Llama with a sliding window in every layer. Reference: transformers,
//! `models/mistral/modeling_mistral.py`.

use super::llama;
use crate::models::architecture::Architecture;
use crate::models::config::{Config, ConfigError};
use crate::models::decoder::Decoder;
use crate::models::windows;
use crate::weights::gguf::architecture::{Divisors, GgufArchitecture};

/// This architecture's row in [`ARCHITECTURES`](super::ARCHITECTURES).
pub(super) const ARCHITECTURE: Architecture = Architecture { name: "mistral", describe, gguf: Some(GGUF) };

/// GGUF has the same name for Llama and Mistral. Only Mistral has a sliding window.
const GGUF: GgufArchitecture = GgufArchitecture {
    condition: Some(|header| Ok(header.window()?.is_some())),
    interleaved: true,
    has_window: true,
    biases: llama::GGUF_BIASES,
    divisors: Divisors::OfScaling,
    ..GgufArchitecture::named("llama")
};

fn describe(config: &Config<'_>) -> Result<Decoder, ConfigError> {
    let mut decoder = llama::decoder(config, &llama::DEFAULTS)?;
    let window = config.find_size("sliding_window")?;
    windows::add(&mut decoder, config, window, |_| true)?;
    Ok(decoder)
}

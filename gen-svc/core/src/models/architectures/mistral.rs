//! Mistral: Llama with a sliding window in every layer. Reference: transformers,
//! `models/mistral/modeling_mistral.py`.

use super::llama::{self, Defaults};
use crate::models::architecture::Architecture;
use crate::models::config::{Config, ConfigError};
use crate::models::decoder::Decoder;
use crate::weights::gguf::architecture::{Divisors, GgufArchitecture};

/// Defaults of settings that are not in the config.
const DEFAULTS: Defaults =
    Defaults { feed_forward: 14_336, kv_heads: Some(8), context: 131_072, biases: &[], ..llama::DEFAULTS };

const DEFAULT_WINDOW_TOKENS: usize = 4096;

/// This architecture's row in [`ARCHITECTURES`](super::ARCHITECTURES).
pub(in crate::models) const ARCHITECTURE: Architecture = Architecture { name: "mistral", describe, gguf: Some(GGUF) };

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
    let mut decoder = llama::decoder(config, &DEFAULTS)?;
    let window = config.size_unless_null("sliding_window", DEFAULT_WINDOW_TOKENS)?;
    decoder.attentions_mut().for_each(|attention| attention.window = window);
    Ok(decoder)
}

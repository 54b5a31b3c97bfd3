//! Granite: Llama with constant factors for embeddings, attention scores, residual branches and
//! logits. Reference: transformers, `models/granite/modeling_granite.py`.

use super::llama;
use crate::models::architecture::Architecture;
use crate::models::config::{Config, ConfigError};
use crate::models::decoder::Decoder;
use crate::weights::gguf::architecture::GgufArchitecture;

/// This architecture's row in [`ARCHITECTURES`](super::ARCHITECTURES).
pub(super) const ARCHITECTURE: Architecture = Architecture { name: "granite", describe, gguf: Some(GGUF) };

const GGUF: GgufArchitecture = GgufArchitecture {
    interleaved: true,
    floats: &[
        ("attention_multiplier", "attention.scale"),
        ("embedding_multiplier", "embedding_scale"),
        ("residual_multiplier", "residual_scale"),
        ("logits_scaling", "logit_scale"),
    ],
    ..GgufArchitecture::named("granite")
};

fn describe(config: &Config<'_>) -> Result<Decoder, ConfigError> {
    let mut decoder = llama::decoder(config, &llama::DEFAULTS)?;
    let scale = config.float_or("attention_multiplier", 1.0)?;
    let residual_scale = config.float_or("residual_multiplier", 1.0)?;
    for layer in &mut decoder.layers {
        layer.attention.scale = scale;
        layer.residual_scale = residual_scale;
    }
    decoder.embed_scale = config.float_or("embedding_multiplier", 1.0)?;
    decoder.logits.scale = config.float_or("logits_scaling", 1.0)?.recip();
    Ok(decoder)
}

//! Granite: Llama with constant factors for embeddings, attention scores, residual branches and
//! logits. Reference: transformers, `models/granite/modeling_granite.py`.

use serde_json::json;

use super::llama;
use crate::error::LoadError;
use crate::models::architecture::Architecture;
use crate::models::config::{Config, ConfigError};
use crate::models::decoder::Decoder;
use crate::weights::gguf::architecture::{ConfigMap, Divisors, GgufArchitecture};
use crate::weights::gguf::header::GgufHeader;

/// This architecture's row in [`ARCHITECTURES`](super::ARCHITECTURES).
pub(super) const ARCHITECTURE: Architecture = Architecture { name: "granite", describe, gguf: Some(GGUF) };

const GGUF: GgufArchitecture = GgufArchitecture {
    interleaved: true,
    decisive: &["rope.scaling.finetuned"],
    biases: llama::GGUF_BIASES,
    divisors: Divisors::OfScaling,
    add_implied,
    ..GgufArchitecture::named("granite")
};

/// Adds the factors. As in llama.cpp, zero is the same as an absent key, and logits always have a factor.
/// A file in which `rope.scaling.finetuned` is false has no rotary positions.
fn add_implied(header: &GgufHeader, config: &mut ConfigMap) -> Result<(), LoadError> {
    const ROTATED: &str = "rope.scaling.finetuned";
    if header.find(ROTATED)? == Some(false) {
        return Err(header.refused(ROTATED, false));
    }
    let natural = f64::from(header.head_size()?).sqrt().recip();
    for (setting, key, default) in [
        ("attention_multiplier", "attention.scale", natural),
        ("embedding_multiplier", "embedding_scale", 1.0),
        ("residual_multiplier", "residual_scale", 1.0),
    ] {
        let scale = header.find::<f32>(key)?.filter(|scale| *scale != 0.0);
        config.insert(setting.into(), json!(scale.map_or(default, f64::from)));
    }
    config.insert("logits_scaling".into(), json!(f64::from(header.require::<f32>("logit_scale")?)));
    Ok(())
}

fn describe(config: &Config<'_>) -> Result<Decoder, ConfigError> {
    let mut decoder = llama::decoder(config, &llama::DEFAULTS)?;
    let scale = config.float_or("attention_multiplier", 1.0)?;
    let residual_scale = config.float_or("residual_multiplier", 1.0)?;
    decoder.attentions_mut().for_each(|attention| attention.scale = scale);
    decoder.layers.iter_mut().for_each(|layer| layer.residual_scale = residual_scale);
    decoder.embed_scale = config.float_or("embedding_multiplier", 1.0)?;
    decoder.logits.scale = config.float_or("logits_scaling", 1.0)?.recip();
    Ok(decoder)
}

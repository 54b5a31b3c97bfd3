//! Granite: Llama with factors on embeddings, scores, branches and logits. Reference: transformers,
//! `models/granite/modeling_granite.py`.

use super::config::Config;
use super::decoder::Decoder;
use super::llama;
use crate::error::Error;

pub(super) fn describe(config: &Config<'_>) -> Result<Decoder, Error> {
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

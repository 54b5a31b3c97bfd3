//! Gemma 2: norms before and after each branch, bounded scores and logits, a window in every other layer. Reference: transformers,
//! `models/gemma2/modeling_gemma2.py`.

use super::config::Config;
use super::decoder::{Decoder, Norm};
use super::llama::{self, Defaults, path};
use super::rope;
use super::windows;
use crate::error::Error;

/// What a config may leave out.
const DEFAULTS: Defaults = Defaults {
    tied: true,
    head_size: Some(256),
    activation: ("hidden_activation", "gelu_pytorch_tanh"),
    ropes: &[rope::ONLY],
    ..llama::DEFAULTS
};

pub(super) fn describe(config: &Config<'_>) -> Result<Decoder, Error> {
    let mut decoder = decoder(config, &DEFAULTS)?;
    let softcap = config.find_positive("attn_logit_softcapping")?;
    decoder.layers.iter_mut().for_each(|layer| layer.attention.softcap = softcap);
    let window = config.find_size("sliding_window")?;
    windows::add(&mut decoder, config, window, |i| i.is_multiple_of(2))?;
    Ok(decoder)
}

/// What both generations share.
pub(super) fn decoder(config: &Config<'_>, defaults: &Defaults) -> Result<Decoder, Error> {
    let mut decoder = llama::decoder(config, defaults)?;
    let scale = config.float_or("query_pre_attn_scalar", 256.0)?.sqrt().recip();
    for (i, layer) in decoder.layers.iter_mut().enumerate() {
        layer.attention.scale = scale;
        let norms = &mut layer.norms;
        let norm = |name| Norm { name: format!("{}.{name}", path(i)), ..norms.before_attention.clone() };
        norms.after_attention = Some(norm("post_attention_layernorm"));
        norms.after_feed_forward = Some(norm("post_feedforward_layernorm"));
        norms.before_feed_forward = norm("pre_feedforward_layernorm");
    }
    decoder.embed_scale = (decoder.hidden as f32).sqrt();
    decoder.logits.softcap = config.find_positive("final_logit_softcapping")?;
    add_offset(&mut decoder, config)?;
    Ok(decoder)
}

/// Norms multiply with 1 + weight, unless a converter has added the 1 already.
fn add_offset(decoder: &mut Decoder, config: &Config<'_>) -> Result<(), Error> {
    let offset = config.find_float("norm_offset")?.unwrap_or(1.0);
    decoder.norms_mut().for_each(|norm| norm.offset = offset);
    Ok(())
}

//! Gemma 2: norms before and after each branch, bounded scores and logits, a window in every other
//! layer. Reference: transformers, `models/gemma2/modeling_gemma2.py`.

use serde_json::json;

use super::llama::{self, ATTENTION_BIAS, Defaults, path};
use crate::error::LoadError;
use crate::models::architecture::Architecture;
use crate::models::config::{Config, ConfigError};
use crate::models::decoder::{Decoder, Norm};
use crate::models::windows;
use crate::weights::gguf::architecture::{ConfigMap, GgufArchitecture, Name};
use crate::weights::gguf::header::GgufHeader;

/// Defaults of settings that are not in the config.
pub(super) const DEFAULTS: Defaults = Defaults {
    tied: true,
    hidden: 2304,
    feed_forward: 9216,
    layers: 26,
    heads: 8,
    kv_heads: Some(4),
    head_size: Some(256),
    vocabulary: 256_000,
    context: 8192,
    biases: &[ATTENTION_BIAS],
    activation: ("hidden_activation", "gelu_pytorch_tanh"),
    ..llama::DEFAULTS
};

const DEFAULT_SCORE_CAP: f32 = 50.0;
const DEFAULT_LOGIT_CAP: f32 = 30.0;
const DEFAULT_WINDOW_TOKENS: usize = 4096;

/// This architecture's row in [`ARCHITECTURES`](super::ARCHITECTURES).
pub(super) const ARCHITECTURE: Architecture = Architecture { name: "gemma2", describe, gguf: Some(GGUF) };

const GGUF: GgufArchitecture = GgufArchitecture {
    floats: &[
        ("attn_logit_softcapping", "attn_logit_softcapping"),
        ("final_logit_softcapping", "final_logit_softcapping"),
    ],
    layer_tensors: &[GGUF_NORMS],
    add_implied: add_gguf_settings,
    ..GgufArchitecture::named("gemma2")
};

/// llama.cpp's values of keys that a file leaves out: the window, the bounds of scores and of logits,
/// and n, if one of n layers has no window.
const GGUF_WINDOW_TOKENS: u32 = 4096;
const GGUF_SOFTCAPS: [(&str, f64); 2] = [("attn_logit_softcapping", 50.0), ("final_logit_softcapping", 30.0)];
const GGUF_PATTERN_LAYERS: u32 = 2;

fn add_gguf_settings(header: &GgufHeader, config: &mut ConfigMap) -> Result<(), LoadError> {
    const LOCAL_BASE: &str = "rope.freq_base_swa";
    add_implied(header, config, LARGEST_MODEL_LAYERS)?;
    for (setting, default) in GGUF_SOFTCAPS {
        config.entry(setting).or_insert(json!(default));
    }
    let window = header.find::<u32>("attention.sliding_window")?.unwrap_or(GGUF_WINDOW_TOKENS);
    config.insert("sliding_window".into(), json!(window));
    windows::add_gguf_layers(header, config, GGUF_PATTERN_LAYERS)?;
    check_scaling(header)?;
    match header.find::<f32>(LOCAL_BASE)? {
        Some(base) if config.get("rope_theta") != Some(&json!(f64::from(base))) => {
            Err(header.refused(LOCAL_BASE, base))
        }
        _ => Ok(()),
    }
}

/// Fails for a factor without use. llama.cpp applies it to the layers with a window only.
fn check_scaling(header: &GgufHeader) -> Result<(), LoadError> {
    const TYPE: &str = "rope.scaling.type";
    let has_factor = ["rope.scaling.factor", "rope.scale_linear"].iter().any(|key| header.value(key).is_some());
    match header.find::<&str>(TYPE)? {
        Some(kind @ "none") if has_factor => Err(header.refused(TYPE, format!("{kind:?} beside a factor"))),
        _ => Ok(()),
    }
}

/// The four norms of a layer in GGUF.
pub(super) const GGUF_NORMS: &[Name] = &[
    ("post_attention_layernorm", "post_attention_norm"),
    ("pre_feedforward_layernorm", "ffn_norm"),
    ("post_feedforward_layernorm", "post_ffw_norm"),
];

/// Layers of the 27B model.
const LARGEST_MODEL_LAYERS: u32 = 46;

/// Adds the settings that a GGUF file implies. llama.cpp recognizes the largest model, whose attention scale differs, by its layers.
pub(super) fn add_implied(header: &GgufHeader, config: &mut ConfigMap, largest: u32) -> Result<(), LoadError> {
    let is_largest = header.find("block_count")? == Some(largest);
    let size = if is_largest { header.hidden_size_per_head()? } else { header.head_size()? };
    config.insert("query_pre_attn_scalar".into(), json!(size));
    Ok(())
}

fn describe(config: &Config<'_>) -> Result<Decoder, ConfigError> {
    config.require("use_bidirectional_attention", &json!(false))?;
    let mut decoder = decoder(config, &DEFAULTS)?;
    decoder.logits.softcap = config.float_unless_null("final_logit_softcapping", DEFAULT_LOGIT_CAP)?;
    let softcap = config.float_unless_null("attn_logit_softcapping", DEFAULT_SCORE_CAP)?;
    decoder.attentions_mut().for_each(|attention| attention.softcap = softcap);
    let window = config.size_unless_null("sliding_window", DEFAULT_WINDOW_TOKENS)?;
    windows::add(&mut decoder, config, window, |i| i.is_multiple_of(2))?;
    Ok(decoder)
}

/// Describes the part that Gemma 2 and Gemma 3 share.
pub(super) fn decoder(config: &Config<'_>, defaults: &Defaults) -> Result<Decoder, ConfigError> {
    let mut decoder = llama::decoder(config, defaults)?;
    let scale = config.float_or("query_pre_attn_scalar", 256.0)?.sqrt().recip();
    decoder.attentions_mut().for_each(|attention| attention.scale = scale);
    add_output_norms(&mut decoder);
    scale_ends(&mut decoder, config)?;
    add_offset(&mut decoder, config)?;
    Ok(decoder)
}

/// Adds the factor of embeddings and the bound of logits.
pub(super) fn scale_ends(decoder: &mut Decoder, config: &Config<'_>) -> Result<(), ConfigError> {
    decoder.embed_scale = (decoder.hidden as f32).sqrt();
    decoder.logits.softcap = config.find_positive("final_logit_softcapping")?;
    Ok(())
}

/// Adds the norms of the outputs of both branches to every layer.
pub(super) fn add_output_norms(decoder: &mut Decoder) {
    for (i, layer) in decoder.layers.iter_mut().enumerate() {
        let norms = &mut layer.norms;
        let norm = |name| Norm { name: format!("{}.{name}", path(i)), ..norms.before_attention.clone() };
        norms.after_attention = Some(norm("post_attention_layernorm"));
        norms.after_feed_forward = Some(norm("post_feedforward_layernorm"));
        norms.before_feed_forward = norm("pre_feedforward_layernorm");
    }
}

/// Adds 1 to the weights of norms, unless a converter has already added it.
fn add_offset(decoder: &mut Decoder, config: &Config<'_>) -> Result<(), ConfigError> {
    let offset = if config.is_converted()? { 0.0 } else { 1.0 };
    decoder.norms_mut().for_each(|norm| norm.offset = offset);
    Ok(())
}

//! Gemma 3's language model: Gemma 2 with norms of queries and keys instead of bounded scores. Five
//! of six layers have a window and use a second rotary embedding. Reference: transformers,
//! `models/gemma3/modeling_gemma3.py`.

use crate::models::architecture::Architecture;
use crate::weights::gguf::architecture::{ConfigMap, GgufArchitecture};
use crate::weights::gguf::header::GgufHeader;
use serde_json::{Value, json};

use super::gemma2;
use super::llama::{self, Defaults};
use crate::error::LoadError;
use crate::models::config::{Config, ConfigError};
use crate::models::decoder::Decoder;
use crate::models::rope::{self, RopeSetting, Sections};
use crate::models::windows;

/// The rotary embedding of layers without a window.
const GLOBAL: RopeSetting = RopeSetting { default_theta: 1_000_000.0, sections: Sections::PerType, ..rope::ONLY };

/// The rotary embedding of layers with a window.
const LOCAL: RopeSetting = RopeSetting {
    layer_type: "sliding_attention",
    theta: "rope_local_base_freq",
    scaled: false,
    sections: Sections::PerType,
    ..rope::ONLY
};

/// Defaults of settings that are not in the config.
const DEFAULTS: Defaults =
    Defaults { vocabulary: 262_208, context: 131_072, ropes: &[GLOBAL, LOCAL], ..gemma2::DEFAULTS };

const DEFAULT_WINDOW_TOKENS: usize = 4096;
const DEFAULT_PATTERN_LAYERS: usize = 6;

/// The row of the language model.
pub(in crate::models) const TEXT: Architecture = Architecture { name: "gemma3_text", describe, gguf: Some(GGUF) };

const GGUF: GgufArchitecture = GgufArchitecture {
    floats: &[("final_logit_softcapping", "final_logit_softcapping")],
    layer_tensors: &[gemma2::GGUF_NORMS],
    add_implied: add_gguf_settings,
    ..GgufArchitecture::named("gemma3")
};

/// Adds the settings that a GGUF file implies. Without a window, all layers use the global rotary
/// embedding. The header's factor of frequencies applies to that embedding only, the factor of cosine
/// and sine to both.
fn add_gguf_settings(header: &GgufHeader, config: &mut ConfigMap) -> Result<(), LoadError> {
    gemma2::add_implied(header, config, LARGEST_MODEL_LAYERS)?;
    let local_base = header.find::<f32>("rope.freq_base_swa")?.unwrap_or(10_000.0);
    windows::add_gguf_layers(header, config, DEFAULT_PATTERN_LAYERS as u32)?;
    match header.window()? {
        Some(window) => drop(config.insert("sliding_window".into(), json!(window))),
        None => windows::remove_gguf_windows(config),
    }
    let mut local = json!({"rope_theta": f64::from(local_base)});
    let mut global = json!({"rope_theta": config.get("rope_theta")});
    if let Some(Value::Object(scaling)) = config.remove("rope_scaling") {
        let count = scaling["divisors"].as_array().map_or(0, Vec::len);
        local["rope_type"] = json!("gguf.divided");
        local["divisors"] = json!(vec![1.0; count]);
        local["attention_factor"] = scaling["attention_factor"].clone();
        scaling.into_iter().for_each(|(setting, value)| global[setting] = value);
    }
    config.insert("rope_parameters".into(), json!({"full_attention": global, "sliding_attention": local}));
    Ok(())
}

/// Layers of the 27B model.
const LARGEST_MODEL_LAYERS: u32 = 62;

/// Describes the language model of a model with images.
pub(in crate::models) fn describe_with_images(config: &Config<'_>) -> Result<Decoder, ConfigError> {
    let mut decoder = describe(config)?;
    // As in transformers, `final_logit_softcapping` has no effect in a model with images.
    decoder.logits.softcap = None;
    decoder.attentions_mut().for_each(|attention| attention.image_blocks = true);
    Ok(decoder)
}

fn describe(config: &Config<'_>) -> Result<Decoder, ConfigError> {
    config.require("use_bidirectional_attention", &json!(false))?;
    config.require("attn_logit_softcapping", &json!(null))?;
    let mut decoder = gemma2::decoder(config, &DEFAULTS)?;
    llama::add_qk_norms(&mut decoder);
    let pattern = config.find_size("sliding_window_pattern")?.unwrap_or(DEFAULT_PATTERN_LAYERS);
    let window = config.size_unless_null("sliding_window", DEFAULT_WINDOW_TOKENS)?;
    windows::add(&mut decoder, config, window, |i| !(i + 1).is_multiple_of(pattern))?;
    for attention in decoder.attentions_mut() {
        attention.rope = Some(usize::from(attention.window.is_some()));
    }
    Ok(decoder)
}

//! Qwen 3.5's language model as a mixture of experts. Reference: transformers,
//! `models/qwen3_5_moe/modeling_qwen3_5_moe.py`.

use serde_json::json;

use super::llama::{self, Defaults};
use super::qwen3_5::{self, Order};
use super::qwen3_moe::{self, Mixture};
use crate::error::LoadError;
use crate::models::architecture::Architecture;
use crate::models::config::{Config, ConfigError};
use crate::models::decoder::Decoder;
use crate::weights::gguf::architecture::{ConfigMap, GgufArchitecture, Name};
use crate::weights::gguf::header::GgufHeader;

/// Defaults of settings that are not in the config.
const DEFAULTS: Defaults = Defaults { hidden: 2048, layers: 40, kv_heads: Some(2), ..qwen3_5::DEFAULTS };

const MIXTURE: Mixture = Mixture {
    names: &[qwen3_moe::COUNT],
    experts: 256,
    per_token: 8,
    size: 512,
    shared: Some(512),
    normalize: None,
    has_dense_layers: false,
};

/// The row of the language model.
pub(in crate::models) const TEXT: Architecture = Architecture { name: "qwen3_5_moe_text", describe, gguf: Some(GGUF) };

const GGUF: GgufArchitecture = GgufArchitecture {
    name: "qwen35moe",
    integers: qwen3_moe::GGUF_INTEGERS,
    layer_tensors: &[qwen3_5::GGUF_MIXERS, GGUF_FEED_FORWARD],
    expert_tensors: qwen3_moe::GGUF_EXPERTS,
    add_implied,
    ..qwen3_5::GGUF
};

/// The router, and the expert of all tokens.
pub(super) const GGUF_FEED_FORWARD: &[Name] = &[
    ("mlp.gate", "ffn_gate_inp"),
    ("mlp.shared_expert.gate_proj", "ffn_gate_shexp"),
    ("mlp.shared_expert.up_proj", "ffn_up_shexp"),
    ("mlp.shared_expert.down_proj", "ffn_down_shexp"),
    ("mlp.shared_expert_gate", "ffn_gate_inp_shexp"),
];

/// Adds the settings that a GGUF file implies. The expert of all tokens has, by default, the size of a feed-forward
/// block.
pub(super) fn add_implied(header: &GgufHeader, config: &mut ConfigMap) -> Result<(), LoadError> {
    const SHARED: &str = "shared_expert_intermediate_size";
    qwen3_moe::add_sizes(header, config)?;
    let shared = header.find::<u32>("expert_shared_feed_forward_length")?.filter(|size| *size != 0);
    config.insert(SHARED.into(), shared.map_or(config["intermediate_size"].clone(), |size| json!(size)));
    qwen3_5::add_implied(header, config)
}

fn describe(config: &Config<'_>) -> Result<Decoder, ConfigError> {
    let mut decoder = llama::decoder(config, &DEFAULTS)?;
    qwen3_5::add_mixers(&mut decoder, config, Order::of(config)?)?;
    qwen3_moe::add_experts(&mut decoder, config, &MIXTURE)?;
    Ok(decoder)
}

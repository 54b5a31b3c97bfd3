//! Phi 3: Llama with queries, keys and values in one matrix, and gate and up in another. Its rotary
//! embedding may cover only a part of each head. Reference: transformers,
//! `models/phi3/modeling_phi3.py`.

use super::llama::{self, Defaults, path};
use crate::models::architecture::Architecture;
use crate::models::config::{Config, ConfigError};
use crate::models::decoder::{Decoder, FeedForward, Matrix};
use crate::models::rope::{self, RopeSetting};
use crate::weights::gguf::architecture::{Divisors, GgufArchitecture};

/// Defaults of settings that are not in the config.
const DEFAULTS: Defaults = Defaults {
    epsilon: 1e-5,
    hidden: 3072,
    feed_forward: 8192,
    vocabulary: 32_064,
    context: 4096,
    biases: &[],
    ropes: &[RopeSetting { partial: true, original: Some(4096), ..rope::ONLY }],
    ..llama::DEFAULTS
};

/// This architecture's row in [`ARCHITECTURES`](super::ARCHITECTURES).
pub(super) const ARCHITECTURE: Architecture = Architecture { name: "phi3", describe, gguf: Some(GGUF) };

const GGUF: GgufArchitecture = GgufArchitecture {
    has_window: true,
    has_partial_rotation: true,
    biases: &["self_attn.qkv_proj"],
    divisors: Divisors::ShortAndLong,
    layer_tensors: &[&[("self_attn.qkv_proj", "attn_qkv"), ("mlp.gate_up_proj", "ffn_up")]],
    ..GgufArchitecture::named("phi3")
};

fn describe(config: &Config<'_>) -> Result<Decoder, ConfigError> {
    let mut decoder = llama::decoder(config, &DEFAULTS)?;
    for (i, layer) in decoder.layers.iter_mut().enumerate() {
        if let Some(attention) = layer.attention_mut() {
            fuse(&mut attention.qkv, format!("{}.self_attn.qkv_proj", path(i)));
        }
        if let FeedForward::Gated(gated) = &mut layer.feed_forward {
            fuse(&mut gated.gate_up, format!("{}.mlp.gate_up_proj", path(i)));
        }
    }
    let window = config.find_size("sliding_window")?;
    decoder.attentions_mut().for_each(|attention| attention.window = window);
    Ok(decoder)
}

/// Replaces stacked matrices by one.
fn fuse(parts: &mut Vec<Matrix>, name: String) {
    let rows = parts.iter().map(|part| part.rows).sum();
    let columns = parts.first().map_or(0, |part| part.columns);
    *parts = vec![Matrix::new(name, rows, columns)];
}

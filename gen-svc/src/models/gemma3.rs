//! Gemma 3's language model: Gemma 2 with norms of queries and keys instead of bounded scores, a window in five of six layers, and a
//! rotation of their own for those. Reference: transformers, `models/gemma3/modeling_gemma3.py`.

use serde_json::json;

use super::config::Config;
use super::decoder::Decoder;
use super::gemma2;
use super::llama::{self, Defaults};
use super::rope::{self, RopeSetting};
use super::windows;
use crate::error::Error;

/// Of layers without a window.
const GLOBAL: RopeSetting = RopeSetting { default_theta: 1_000_000.0, ..rope::ONLY };

/// Of layers with one.
const LOCAL: RopeSetting =
    RopeSetting { layer_type: "sliding_attention", theta: "rope_local_base_freq", scaled: false, ..rope::ONLY };

/// What a config may leave out. Those of published models leave out much.
const DEFAULTS: Defaults = Defaults {
    tied: true,
    heads: Some(8),
    kv_heads: Some(4),
    head_size: Some(256),
    vocabulary: Some(262_208),
    context: Some(131_072),
    activation: ("hidden_activation", "gelu_pytorch_tanh"),
    ropes: &[GLOBAL, LOCAL],
    ..llama::DEFAULTS
};

const WINDOW: usize = 4096;
const PATTERN: usize = 6;

pub(super) fn describe(config: &Config<'_>) -> Result<Decoder, Error> {
    config.require("use_bidirectional_attention", &json!(false))?;
    config.require("attn_logit_softcapping", &json!(null))?;
    let mut decoder = gemma2::decoder(config, &DEFAULTS)?;
    llama::add_qk_norms(&mut decoder);
    let pattern = config.find_size("sliding_window_pattern")?.unwrap_or(PATTERN);
    let window = config.find_size("sliding_window")?.unwrap_or(WINDOW);
    windows::add(&mut decoder, config, Some(window), |i| !(i + 1).is_multiple_of(pattern))?;
    for layer in &mut decoder.layers {
        layer.attention.rope = Some(usize::from(layer.attention.window.is_some()));
    }
    Ok(decoder)
}

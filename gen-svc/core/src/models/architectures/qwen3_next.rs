//! Qwen 3 Next: a mixture of experts with gated DeltaNets, whose inputs are grouped by key head. Reference:
//! transformers, `models/qwen3_next/modeling_qwen3_next.py`.

use serde_json::json;

use super::llama::{self, Defaults};
use super::qwen3_5::{self, Order, Sizes};
use super::qwen3_5_moe;
use super::qwen3_moe::{self, Mixture};
use crate::error::LoadError;
use crate::models::architecture::Architecture;
use crate::models::config::{Config, ConfigError};
use crate::models::decoder::{Decoder, Grouped, KeyHeads, Matrix};
use crate::models::rope::RopeSetting;
use crate::weights::gguf::architecture::{ConfigMap, GgufArchitecture};
use crate::weights::gguf::header::GgufHeader;

/// Positions have one axis.
const ROPE: RopeSetting = RopeSetting { axes: None, ..qwen3_5::ROPE };

/// Defaults of settings that are not in the config.
const DEFAULTS: Defaults = Defaults {
    hidden: 2048,
    feed_forward: 5632,
    layers: 48,
    kv_heads: Some(2),
    vocabulary: 151_936,
    ropes: &[ROPE],
    ..qwen3_5::DEFAULTS
};

const MIXTURE: Mixture = Mixture {
    names: &[qwen3_moe::COUNT],
    experts: 512,
    per_token: 10,
    size: 512,
    shared: Some(512),
    normalize: Some(true),
    has_dense_layers: true,
};

/// This architecture's row in [`ARCHITECTURES`](super::ARCHITECTURES).
pub(super) const ARCHITECTURE: Architecture = Architecture { name: "qwen3_next", describe, gguf: Some(GGUF) };

/// The converter divides the groups of queries, keys, values and z, and keeps the others.
const GGUF: GgufArchitecture = GgufArchitecture {
    name: "qwen3next",
    integers: qwen3_moe::GGUF_INTEGERS,
    layer_tensors: &[&[("linear_attn.in_proj_ba", "ssm_ba")], qwen3_5::GGUF_MIXERS, qwen3_5_moe::GGUF_FEED_FORWARD],
    expert_tensors: qwen3_moe::GGUF_EXPERTS,
    add_implied,
    ..qwen3_5::GGUF
};

fn add_implied(header: &GgufHeader, config: &mut ConfigMap) -> Result<(), LoadError> {
    config.insert("norm_topk_prob".into(), json!(true)); // as in llama.cpp
    qwen3_5_moe::add_implied(header, config)
}

fn describe(config: &Config<'_>) -> Result<Decoder, ConfigError> {
    let mut decoder = llama::decoder(config, &DEFAULTS)?;
    let inputs = if config.is_converted()? { converted } else { inputs };
    qwen3_5::add_mixers(&mut decoder, config, Order { inputs, pairing: KeyHeads::Adjacent })?;
    qwen3_moe::add_experts(&mut decoder, config, &MIXTURE)?;
    Ok(decoder)
}

/// Returns the matrices of the inputs in a GGUF file.
fn converted(path: &str, sizes: &Sizes) -> Vec<Grouped> {
    let grouped = inputs(path, sizes).into_iter().skip(1);
    qwen3_5::inputs(path, sizes).into_iter().take(2).chain(grouped).collect()
}

/// Returns the matrices of the inputs below a path. Each key head has a group of rows, with those of its value heads.
fn inputs(path: &str, sizes: &Sizes) -> Vec<Grouped> {
    let Sizes { hidden, key_heads: groups, value_heads, key_size, value_size, .. } = *sizes;
    let heads = value_heads / groups;
    let input = |name: &str, sizes: Vec<usize>| {
        let rows = groups * sizes.iter().sum::<usize>();
        Grouped { matrix: Matrix::new(format!("{path}.{name}"), rows, hidden), groups, sizes }
    };
    let values = heads * value_size;
    vec![input("in_proj_qkvz", vec![key_size, key_size, values, values]), input("in_proj_ba", vec![heads, heads])]
}

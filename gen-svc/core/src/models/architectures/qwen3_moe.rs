//! Qwen 3 as a mixture of experts: a router chooses some of the feed-forward blocks for each token.
//! Reference: transformers, `models/qwen3_moe/modeling_qwen3_moe.py`.

use serde_json::json;

use super::llama::{self, ATTENTION_BIAS, Defaults, path};
use super::qwen2;
use crate::error::LoadError;
use crate::models::architecture::Architecture;
use crate::models::config::{Config, ConfigError, unsupported};
use crate::models::decoder::{Decoder, Experts, FeedForward, Gated, Matrix, SharedExpert};
use crate::weights::gguf::architecture::{ConfigMap, GgufArchitecture, Name};
use crate::weights::gguf::header::GgufHeader;

/// Defaults of settings that are not in the config.
const DEFAULTS: Defaults = Defaults {
    hidden: 2048,
    feed_forward: 6144,
    layers: 24,
    kv_heads: Some(4),
    biases: &[ATTENTION_BIAS],
    ..qwen2::DEFAULTS
};

const MAX_EXPERTS: usize = 4096;
/// The number of experts.
pub(super) const COUNT: &str = "num_experts";

/// The experts of an architecture's class in transformers: defaults, and the settings that it has.
#[derive(Debug, Clone, Copy)]
pub(super) struct Mixture {
    /// The names of the number of experts.
    pub(super) names: &'static [&'static str],
    pub(super) experts: usize,
    pub(super) per_token: usize,
    /// F of each expert.
    pub(super) size: usize,
    /// F of the expert of all tokens. `None`: there is none.
    pub(super) shared: Option<usize>,
    /// The default of `norm_topk_prob`. `None`: there is no such setting, and shares are scaled to a sum of 1.
    pub(super) normalize: Option<bool>,
    /// True if settings select the layers with experts. False: all have.
    pub(super) has_dense_layers: bool,
}

const MIXTURE: Mixture = Mixture {
    names: &[COUNT, "num_local_experts"],
    experts: 128,
    per_token: 8,
    size: 768,
    shared: None,
    normalize: Some(false),
    has_dense_layers: true,
};

/// This architecture's row in [`ARCHITECTURES`](super::ARCHITECTURES).
pub(super) const ARCHITECTURE: Architecture = Architecture { name: "qwen3_moe", describe, gguf: Some(GGUF) };

const GGUF: GgufArchitecture = GgufArchitecture {
    integers: GGUF_INTEGERS,
    ignored: qwen2::GGUF_WINDOW,
    layer_tensors: &[&[("mlp.gate", "ffn_gate_inp")]],
    expert_tensors: GGUF_EXPERTS,
    add_implied,
    ..GgufArchitecture::named("qwen3moe")
};

/// The counts of experts, and their matrices.
pub(super) const GGUF_INTEGERS: &[Name] = &[(COUNT, "expert_count"), ("num_experts_per_tok", "expert_used_count")];
pub(super) const GGUF_EXPERTS: &[Name] =
    &[("gate_proj", "ffn_gate_exps"), ("up_proj", "ffn_up_exps"), ("down_proj", "ffn_down_exps")];

/// Adds the settings that a GGUF file implies. The size of an expert is, by default, an equal part of
/// a feed-forward block. That block's size has no other use, because every layer has experts.
fn add_implied(header: &GgufHeader, config: &mut ConfigMap) -> Result<(), LoadError> {
    config.insert("norm_topk_prob".into(), json!(true)); // true for every published model
    add_sizes(header, config)
}

/// Adds the sizes of feed-forward blocks.
pub(super) fn add_sizes(header: &GgufHeader, config: &mut ConfigMap) -> Result<(), LoadError> {
    let whole = header.find_of_layers("feed_forward_length")?.unwrap_or(0);
    let used = header.find::<u32>("expert_used_count")?.unwrap_or(0);
    let own = header.find::<u32>("expert_feed_forward_length")?.filter(|size| *size != 0);
    let size = own.or(whole.checked_div(used)).unwrap_or(0);
    config.insert("moe_intermediate_size".into(), json!(size));
    if whole == 0 {
        config.insert("intermediate_size".into(), json!(size));
    }
    Ok(())
}

fn describe(config: &Config<'_>) -> Result<Decoder, ConfigError> {
    let mut decoder = llama::decoder(config, &DEFAULTS)?;
    llama::add_qk_norms(&mut decoder);
    let window = qwen2::window(config)?;
    decoder.attentions_mut().for_each(|attention| attention.window = window);
    add_experts(&mut decoder, config, &MIXTURE)?;
    Ok(decoder)
}

/// Replaces the feed-forward block with experts in every layer, or in the layers that `decoder_sparse_step` selects
/// and `mlp_only_layers` does not exclude.
pub(super) fn add_experts(decoder: &mut Decoder, config: &Config<'_>, mixture: &Mixture) -> Result<(), ConfigError> {
    let name = mixture.names.iter().copied().find(|name| config.has(name)).unwrap_or(COUNT);
    let count = config.size_up_to(name, MAX_EXPERTS, mixture.experts)?;
    let per_token = config.size_up_to("num_experts_per_tok", count, mixture.per_token)?;
    let size = config.size_or("moe_intermediate_size", mixture.size)?;
    let shared = mixture.shared.map(|size| config.size_or("shared_expert_intermediate_size", size)).transpose()?;
    let normalize = mixture.normalize.map(|default| config.flag_or("norm_topk_prob", default)).transpose()?;
    let activation = config.activation("hidden_act", "silu")?;
    let (step, dense) = match mixture.has_dense_layers {
        true => (config.find_size("decoder_sparse_step")?.unwrap_or(1), dense_layers(config)?),
        false => (1, Vec::new()),
    };
    let chosen = |i: &usize| !dense.contains(i) && (i + 1).is_multiple_of(step);
    for i in (0..decoder.layers.len()).filter(chosen) {
        let mlp = format!("{}.mlp", path(i));
        decoder.layers[i].feed_forward = FeedForward::Experts(Experts {
            router: Matrix::new(format!("{mlp}.gate"), count, decoder.hidden),
            count,
            per_token,
            normalize: normalize.unwrap_or(true),
            path: format!("{mlp}.experts"),
            size,
            activation,
            shared: shared.map(|size| SharedExpert {
                feed_forward: Gated::split(&format!("{mlp}.shared_expert"), decoder.hidden, size, activation, false),
                gate: format!("{mlp}.shared_expert_gate"),
            }),
        });
    }
    Ok(())
}

/// Returns the indexes of the layers that the config lists as dense. A dense layer has one
/// feed-forward block for all tokens.
fn dense_layers(config: &Config<'_>) -> Result<Vec<usize>, ConfigError> {
    const NAME: &str = "mlp_only_layers";
    let list = config.find_list(NAME)?.unwrap_or_default();
    let layers: Option<Vec<usize>> = list.iter().map(|layer| layer.as_u64()?.try_into().ok()).collect();
    layers.ok_or_else(|| unsupported(NAME, "something else than numbers"))
}

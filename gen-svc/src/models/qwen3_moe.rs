//! Qwen 3 as a mixture of experts: Qwen 3 whose feed-forwards are chosen for each token. Reference: transformers,
//! `models/qwen3_moe/modeling_qwen3_moe.py`.

use super::config::{Config, unsupported};
use super::decoder::{Decoder, Experts, FeedForward, Matrix};
use super::llama::{self, path};
use super::{qwen2, qwen3};
use crate::error::Error;

const MOST_EXPERTS: usize = 4096;

pub(super) fn describe(config: &Config<'_>) -> Result<Decoder, Error> {
    let mut decoder = llama::decoder(config, &qwen3::DEFAULTS)?;
    llama::add_qk_norms(&mut decoder);
    qwen2::add_windows(&mut decoder, config)?;
    add_experts(&mut decoder, config)?;
    Ok(decoder)
}

/// Gives experts to the layers that have them.
fn add_experts(decoder: &mut Decoder, config: &Config<'_>) -> Result<(), Error> {
    let count = if config.has("num_experts") { "num_experts" } else { "num_local_experts" };
    let count = config.size_up_to(count, MOST_EXPERTS)?;
    let per_token = config.size_up_to("num_experts_per_tok", count)?;
    let size = config.size("moe_intermediate_size")?;
    let normalize = config.flag_or("norm_topk_prob", false)?;
    let activation = config.activation("hidden_act", "silu")?;
    let (step, dense) = (config.find_size("decoder_sparse_step")?.unwrap_or(1), dense_layers(config)?);
    let chosen = |i: &usize| !dense.contains(i) && (i + 1).is_multiple_of(step);
    for i in (0..decoder.layers.len()).filter(chosen) {
        decoder.layers[i].feed_forward = FeedForward::Experts(Experts {
            router: Matrix::new(format!("{}.mlp.gate", path(i)), count, decoder.hidden),
            count,
            per_token,
            normalize,
            path: format!("{}.mlp.experts", path(i)),
            size,
            activation,
        });
    }
    Ok(())
}

/// Layers that have none in any case.
fn dense_layers(config: &Config<'_>) -> Result<Vec<usize>, Error> {
    const NAME: &str = "mlp_only_layers";
    let list = config.find_list(NAME)?.unwrap_or_default();
    let layers: Option<Vec<usize>> = list.iter().map(|layer| layer.as_u64()?.try_into().ok()).collect();
    layers.ok_or_else(|| unsupported(NAME, "something else than numbers"))
}

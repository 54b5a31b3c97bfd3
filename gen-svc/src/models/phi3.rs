//! Phi 3: Llama with queries, keys and values in one matrix, gate and up in another, and a rotation that may cover only a part of each
//! head. Reference: transformers, `models/phi3/modeling_phi3.py`.

use super::config::Config;
use super::decoder::{Decoder, FeedForward, Matrix};
use super::llama::{self, Defaults, path};
use super::rope::{self, RopeSetting};
use super::windows;
use crate::error::Error;

/// What a config may leave out.
const DEFAULTS: Defaults =
    Defaults { epsilon: 1e-5, ropes: &[RopeSetting { partial: true, ..rope::ONLY }], ..llama::DEFAULTS };

pub(super) fn describe(config: &Config<'_>) -> Result<Decoder, Error> {
    let mut decoder = llama::decoder(config, &DEFAULTS)?;
    for (i, layer) in decoder.layers.iter_mut().enumerate() {
        fuse(&mut layer.attention.qkv, format!("{}.self_attn.qkv_proj", path(i)));
        if let FeedForward::Gated(gated) = &mut layer.feed_forward {
            fuse(&mut gated.gate_up, format!("{}.mlp.gate_up_proj", path(i)));
        }
    }
    let window = config.find_size("sliding_window")?;
    windows::add(&mut decoder, config, window, |_| true)?;
    Ok(decoder)
}

/// Makes one matrix of those that are stacked.
fn fuse(parts: &mut Vec<Matrix>, name: String) {
    let rows = parts.iter().map(|part| part.rows).sum();
    let columns = parts.first().map_or(0, |part| part.columns);
    *parts = vec![Matrix::new(name, rows, columns)];
}

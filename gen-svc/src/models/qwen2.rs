//! Qwen 2: Llama with biases on queries, keys and values. Reference: transformers, `models/qwen2/modeling_qwen2.py`.

use super::config::Config;
use super::decoder::Decoder;
use super::llama;
use super::windows;
use crate::error::Error;

/// Layers before this one have no window, if the config does not say.
const FIRST_WITH_WINDOW: usize = 28;

pub(super) fn describe(config: &Config<'_>) -> Result<Decoder, Error> {
    let mut decoder = llama::decoder(config, &llama::DEFAULTS)?;
    for layer in &mut decoder.layers {
        layer.attention.qkv.iter_mut().for_each(|matrix| matrix.bias = true);
    }
    add_windows(&mut decoder, config)?;
    Ok(decoder)
}

/// The windows of the whole family.
pub(super) fn add_windows(decoder: &mut Decoder, config: &Config<'_>) -> Result<(), Error> {
    let window = if config.flag_or("use_sliding_window", false)? { config.find_size("sliding_window")? } else { None };
    let first = config.find_whole("max_window_layers")?.unwrap_or(FIRST_WITH_WINDOW);
    windows::add(decoder, config, window, |i| i >= first)
}

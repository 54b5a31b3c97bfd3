//! Mistral: Llama whose positions see only so far. Reference: transformers, `models/mistral/modeling_mistral.py`.

use super::config::Config;
use super::decoder::Decoder;
use super::llama;
use super::windows;
use crate::error::Error;

pub(super) fn describe(config: &Config<'_>) -> Result<Decoder, Error> {
    let mut decoder = llama::decoder(config, &llama::DEFAULTS)?;
    let window = config.find_size("sliding_window")?;
    windows::add(&mut decoder, config, window, |_| true)?;
    Ok(decoder)
}

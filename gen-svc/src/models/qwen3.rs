//! Qwen 3: Llama with norms of queries and keys. Reference: transformers, `models/qwen3/modeling_qwen3.py`.

use super::config::Config;
use super::decoder::Decoder;
use super::llama::{self, Defaults};
use super::qwen2;
use crate::error::Error;

/// What a config may leave out.
pub(super) const DEFAULTS: Defaults = Defaults { head_size: Some(128), ..llama::DEFAULTS };

pub(super) fn describe(config: &Config<'_>) -> Result<Decoder, Error> {
    let mut decoder = llama::decoder(config, &DEFAULTS)?;
    llama::add_qk_norms(&mut decoder);
    qwen2::add_windows(&mut decoder, config)?;
    Ok(decoder)
}

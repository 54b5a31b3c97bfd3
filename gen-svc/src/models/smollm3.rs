//! SmolLM 3: Llama with layers that nothing turns. Reference: transformers, `models/smollm3/modeling_smollm3.py`.

use super::config::{Config, unsupported};
use super::decoder::Decoder;
use super::llama::{self, Defaults};
use super::rope::{self, RopeSetting};
use super::windows;
use crate::error::Error;

/// What a config may leave out.
const DEFAULTS: Defaults =
    Defaults { tied: true, ropes: &[RopeSetting { default_theta: 2_000_000.0, ..rope::ONLY }], ..llama::DEFAULTS };

/// Every so manieth layer has no rotation.
const INTERVAL: usize = 4;

pub(super) fn describe(config: &Config<'_>) -> Result<Decoder, Error> {
    let mut decoder = llama::decoder(config, &DEFAULTS)?;
    let turns = turning_layers(config, decoder.layers.len())?;
    let window = if config.flag_or("use_sliding_window", false)? { config.find_size("sliding_window")? } else { None };
    for (layer, turns) in decoder.layers.iter_mut().zip(&turns) {
        layer.attention.rope = turns.then_some(0);
    }
    windows::add(&mut decoder, config, window, |i| !turns[i])?;
    Ok(decoder)
}

/// Which layers turn queries and keys. `no_rope_layers` has a 1 for each that does.
fn turning_layers(config: &Config<'_>, count: usize) -> Result<Vec<bool>, Error> {
    const NAME: &str = "no_rope_layers";
    let interval = config.find_size("no_rope_layer_interval")?.unwrap_or(INTERVAL);
    let Some(list) = config.find_list(NAME)? else {
        return Ok((1..=count).map(|i| !i.is_multiple_of(interval)).collect());
    };
    let turns: Option<Vec<bool>> = list.iter().map(|flag| flag.as_u64().map(|flag| flag != 0)).collect();
    let turns = turns.filter(|turns| turns.len() == count);
    turns.ok_or_else(|| unsupported(NAME, format!("a list of {} for {count} layers", list.len())))
}

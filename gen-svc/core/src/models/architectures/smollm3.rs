//! SmolLM 3: Llama with layers that have no rotary embedding. Reference: transformers,
//! `models/smollm3/modeling_smollm3.py`.

use super::llama::{self, Defaults};
use crate::models::architecture::Architecture;
use crate::models::config::{Config, ConfigError, unsupported};
use crate::models::decoder::Decoder;
use crate::models::rope::{self, RopeSetting};
use crate::models::windows;
use crate::weights::gguf::architecture::GgufArchitecture;

/// Defaults of settings that are not in the config.
const DEFAULTS: Defaults = Defaults {
    tied: true,
    hidden: 2048,
    layers: 36,
    heads: 16,
    kv_heads: Some(4),
    vocabulary: 128_256,
    context: 32_768,
    ropes: &[RopeSetting { default_theta: 2_000_000.0, ..rope::ONLY }],
    ..llama::DEFAULTS
};

/// The default n: every n-th layer has no rotary embedding.
const DEFAULT_INTERVAL_LAYERS: usize = 4;

/// This architecture's row in [`ARCHITECTURES`](super::ARCHITECTURES).
pub(super) const ARCHITECTURE: Architecture = Architecture { name: "smollm3", describe, gguf: Some(GGUF) };

/// llama.cpp ignores the window.
const GGUF: GgufArchitecture = GgufArchitecture {
    interleaved: true,
    ignored: &["attention.sliding_window"],
    ..GgufArchitecture::named("smollm3")
};

fn describe(config: &Config<'_>) -> Result<Decoder, ConfigError> {
    let mut decoder = llama::decoder(config, &DEFAULTS)?;
    let rotated = rotated_layers(config, decoder.layers.len())?;
    let has_windows = config.has("layer_types") || config.flag_or("use_sliding_window", false)?;
    let window = if has_windows { config.find_size("sliding_window")? } else { None };
    for (layer, rotated) in decoder.layers.iter_mut().zip(&rotated) {
        layer.attention_mut().into_iter().for_each(|attention| attention.rope = rotated.then_some(0));
    }
    windows::add(&mut decoder, config, window, |i| !rotated[i])?;
    Ok(decoder)
}

/// Returns for each layer whether its queries and keys are rotated. `no_rope_layers` is 1 for a
/// rotated layer.
fn rotated_layers(config: &Config<'_>, count: usize) -> Result<Vec<bool>, ConfigError> {
    const NAME: &str = "no_rope_layers";
    let interval = config.find_size("no_rope_layer_interval")?.unwrap_or(DEFAULT_INTERVAL_LAYERS);
    let Some(list) = config.find_list(NAME)? else {
        return Ok((1..=count).map(|i| !i.is_multiple_of(interval)).collect());
    };
    let rotated: Option<Vec<bool>> = list.iter().map(|flag| flag.as_u64().map(|flag| flag != 0)).collect();
    let rotated = rotated.filter(|rotated| rotated.len() == count);
    rotated.ok_or_else(|| unsupported(NAME, format!("a list of {} for {count} layers", list.len())))
}

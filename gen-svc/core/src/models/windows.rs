//! Layers with a sliding window.

use serde_json::Value;

use super::config::{Config, ConfigError, unsupported};
use super::decoder::Decoder;

/// Sets the window of the layers in `layer_types`, or of the layers that `slides` selects.
pub(super) fn add(
    decoder: &mut Decoder,
    config: &Config<'_>,
    window: Option<usize>,
    slides: impl Fn(usize) -> bool,
) -> Result<(), ConfigError> {
    let sliding = sliding_layers(config, decoder.layers.len(), slides)?;
    for (layer, sliding) in decoder.layers.iter_mut().zip(sliding) {
        layer.attention.window = window.filter(|_| sliding);
    }
    Ok(())
}

/// Returns for each layer whether it has a window.
fn sliding_layers(config: &Config<'_>, count: usize, slides: impl Fn(usize) -> bool) -> Result<Vec<bool>, ConfigError> {
    const NAME: &str = "layer_types";
    let Some(types) = config.find_list(NAME)? else { return Ok((0..count).map(slides).collect()) };
    if types.len() != count {
        return Err(unsupported(NAME, format!("a list of {} for {count} layers", types.len())));
    }
    let sliding = |kind: &Value| match kind.as_str() {
        Some("sliding_attention") => Ok(true),
        Some("full_attention") => Ok(false),
        _ => Err(unsupported(NAME, kind)),
    };
    types.iter().map(sliding).collect()
}

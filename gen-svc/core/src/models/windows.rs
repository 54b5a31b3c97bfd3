//! Layers with a sliding window.

use serde_json::{Value, json};
use tandem_model_files::gguf;

use super::config::{Config, ConfigError, unsupported};
use super::decoder::Decoder;
use crate::error::LoadError;
use crate::weights::gguf::architecture::ConfigMap;
use crate::weights::gguf::header::GgufHeader;

/// More layers than a model may have, so that a count in a header does not exhaust the memory.
const MAX_GGUF_LAYERS: u32 = 1 << 16;

/// Sets the window of the layers in `layer_types`, or of the layers that `slides` selects.
pub(super) fn add(
    decoder: &mut Decoder,
    config: &Config<'_>,
    window: Option<usize>,
    slides: impl Fn(usize) -> bool,
) -> Result<(), ConfigError> {
    let sliding = sliding_layers(config, decoder.layers.len(), slides)?;
    for (layer, sliding) in decoder.layers.iter_mut().zip(sliding) {
        layer.attention_mut().into_iter().for_each(|attention| attention.window = window.filter(|_| sliding));
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

/// Adds `layer_types` from the header of a GGUF file: a flag for each layer, or n, if the last of n
/// layers has no window. With n = 0, every layer has one.
pub(super) fn add_gguf_layers(header: &GgufHeader, config: &mut ConfigMap, default: u32) -> Result<(), LoadError> {
    const KEY: &str = "attention.sliding_window_pattern";
    let layers = header.find::<u32>("block_count")?.unwrap_or(0).min(MAX_GGUF_LAYERS);
    let name = |sliding: bool| if sliding { "sliding_attention" } else { "full_attention" };
    let types: Vec<&str> = match header.value(KEY) {
        Some(gguf::Value::Array(_)) => {
            let flags = header.require::<&[bool]>(KEY)?;
            if flags.len() != layers as usize {
                return Err(header.refused(KEY, format!("{} flags for {layers} layers", flags.len())));
            }
            flags.iter().copied().map(name).collect()
        }
        _ => {
            let n = header.find::<u32>(KEY)?.unwrap_or(default);
            (0..layers).map(|i| name(n == 0 || i % n < n - 1)).collect()
        }
    };
    config.insert("layer_types".into(), json!(types));
    Ok(())
}

/// Removes the windows of all layers.
pub(super) fn remove_gguf_windows(config: &mut ConfigMap) {
    let types = config.get_mut("layer_types").and_then(Value::as_array_mut);
    types.into_iter().flatten().for_each(|kind| *kind = json!("full_attention"));
}

//! The settings of `config.json` in a GGUF header. A setting that the header leaves out is left out
//! here, or has llama.cpp's default.

use serde_json::{Map, Value, json};

use super::architecture::{CONVERTED, ConfigMap, GgufArchitecture, Name};
use super::header::GgufHeader;
use super::{keys, rope};
use crate::error::LoadError;

/// Whole numbers of every architecture that a file may have for each layer.
const INTEGERS_OF_LAYERS: &[Name] = &[
    ("intermediate_size", "feed_forward_length"),
    ("num_attention_heads", "attention.head_count"),
    ("num_key_value_heads", "attention.head_count_kv"),
];

/// Other whole numbers of every architecture.
const INTEGERS: &[Name] = &[("head_dim", "attention.key_length")];

/// Required whole numbers. The others have defaults here or in the architecture.
const REQUIRED: &[Name] = &[("hidden_size", "embedding_length"), ("max_position_embeddings", "context_length")];
/// A required number.
const EPSILON: Name = ("rms_norm_eps", "attention.layer_norm_rms_epsilon");

/// Other numbers of every architecture.
const FLOATS: &[Name] = &[("rope_theta", "rope.freq_base")];

/// Returns the whole config.
///
/// # Errors
/// A value has the wrong type, a required key is missing, or a key or its value is not supported.
pub(crate) fn config(
    header: &GgufHeader,
    model_type: &str,
    architecture: &GgufArchitecture,
) -> Result<Value, LoadError> {
    let mut config = Map::new();
    config.insert("model_type".into(), json!(model_type));
    if architecture.name.is_empty() {
        return Ok(Value::Object(config)); // not supported, which is an error of its description
    }
    for (setting, key) in INTEGERS_OF_LAYERS {
        if let Some(value) = header.find_of_layers(key)? {
            config.insert((*setting).into(), json!(value));
        }
    }
    for (setting, key) in INTEGERS.iter().chain(architecture.integers) {
        if let Some(value) = header.find::<u32>(key)? {
            config.insert((*setting).into(), json!(value));
        }
    }
    for (setting, key) in REQUIRED {
        config.insert((*setting).into(), json!(header.require::<u32>(key)?));
    }
    config.insert("num_hidden_layers".into(), json!(header.layers(architecture.has_draft_layers)?));
    config.insert(CONVERTED.into(), json!(true));
    config.insert(EPSILON.0.into(), json!(f64::from(header.require::<f32>(EPSILON.1)?)));
    for (setting, key) in FLOATS.iter().chain(architecture.floats) {
        if let Some(value) = header.find::<f32>(key)? {
            config.insert((*setting).into(), json!(f64::from(value)));
        }
    }
    add_defaults(header, architecture, &mut config)?;
    if architecture.has_window
        && let Some(window) = header.window()?
    {
        config.insert("sliding_window".into(), json!(window));
    }
    config.insert("original_max_position_embeddings".into(), json!(rope::original_context(header)?));
    if let Some(scaling) = rope::scaling(header, architecture.divisors)? {
        config.insert("rope_scaling".into(), scaling);
    }
    (architecture.add_implied)(header, &mut config)?;
    keys::check(header, architecture)?;
    Ok(Value::Object(config))
}

/// Adds settings that follow from other settings or from the tensors.
fn add_defaults(header: &GgufHeader, architecture: &GgufArchitecture, config: &mut ConfigMap) -> Result<(), LoadError> {
    const ROTATED: &str = "rope.dimension_count";
    let heads = header.find_of_layers("attention.head_count")?.unwrap_or(0);
    let head_size = header.head_size()?;
    check_value_size(header, head_size)?;
    config.entry("head_dim").or_insert(json!(head_size));
    config.entry("num_key_value_heads").or_insert(json!(heads));
    config.entry("rope_theta").or_insert(json!(10_000.0));
    config.insert("tie_word_embeddings".into(), json!(header.file().tensor("output.weight").is_none()));
    if let Some(table) = header.file().tensor("token_embd.weight") {
        config.insert("vocab_size".into(), json!(table.dims.first()));
    }
    if let Some(rotary_dim) = header.find::<u32>(ROTATED)?
        && rotary_dim != head_size
    {
        if !architecture.has_partial_rotation {
            return Err(header.refused(ROTATED, rotary_dim));
        }
        config.insert("partial_rotary_factor".into(), json!(f64::from(rotary_dim) / f64::from(head_size)));
    }
    Ok(())
}

/// Fails if values have another size than keys.
fn check_value_size(header: &GgufHeader, head_size: u32) -> Result<(), LoadError> {
    const KEY: &str = "attention.value_length";
    match header.find::<u32>(KEY)? {
        Some(size) if size != head_size => Err(header.refused(KEY, size)),
        _ => Ok(()),
    }
}

//! The settings of `config.json` in a GGUF header. A setting that the header leaves out is left out
//! here, or has llama.cpp's default.

use serde_json::{Map, Value, json};
use tandem_model_files::gguf::{GgmlType, TensorInfo};

use super::architecture::{ConfigMap, GgufArchitecture, Name};
use super::header::GgufHeader;
use crate::error::LoadError;
use crate::weights::quant;

/// Whole numbers of every architecture.
const INTEGERS: &[Name] = &[
    ("hidden_size", "embedding_length"),
    ("intermediate_size", "feed_forward_length"),
    ("num_hidden_layers", "block_count"),
    ("num_attention_heads", "attention.head_count"),
    ("num_key_value_heads", "attention.head_count_kv"),
    ("head_dim", "attention.key_length"),
    ("max_position_embeddings", "context_length"),
];

/// Other numbers of every architecture.
const FLOATS: &[Name] = &[("rms_norm_eps", "attention.layer_norm_rms_epsilon"), ("rope_theta", "rope.freq_base")];

/// Returns the whole config.
pub(crate) fn config(
    header: &GgufHeader,
    model_type: &str,
    architecture: &GgufArchitecture,
) -> Result<Value, LoadError> {
    let mut config = Map::new();
    config.insert("model_type".into(), json!(model_type));
    for (setting, key) in INTEGERS.iter().chain(architecture.integers) {
        if let Some(value) = header.find::<u32>(key)? {
            config.insert((*setting).into(), json!(value));
        }
    }
    for (setting, key) in FLOATS.iter().chain(architecture.floats) {
        if let Some(value) = header.find::<f32>(key)? {
            config.insert((*setting).into(), json!(f64::from(value)));
        }
    }
    add_defaults(header, &mut config)?;
    if let Some(window) = header.window()? {
        config.insert("sliding_window".into(), json!(window));
        config.insert("use_sliding_window".into(), json!(true));
    }
    if let Some(original) = header.find::<u32>("rope.scaling.original_context_length")? {
        config.insert("original_max_position_embeddings".into(), json!(original));
    }
    if let Some(scaling) = rope_scaling(header)? {
        config.insert("rope_scaling".into(), scaling);
    }
    (architecture.add_implied)(header, &mut config)?;
    Ok(Value::Object(config))
}

/// Adds settings that follow from other settings or from the tensors.
fn add_defaults(header: &GgufHeader, config: &mut ConfigMap) -> Result<(), LoadError> {
    let heads = header.find::<u32>("attention.head_count")?.unwrap_or(0);
    let head_size = header.head_size()?;
    config.entry("head_dim").or_insert(json!(head_size));
    config.entry("num_key_value_heads").or_insert(json!(heads));
    config.entry("rope_theta").or_insert(json!(10_000.0));
    config.insert("tie_word_embeddings".into(), json!(header.file().tensor("output.weight").is_none()));
    if let Some(table) = header.file().tensor("token_embd.weight") {
        config.insert("vocab_size".into(), json!(table.dims.first()));
    }
    for (setting, bias) in [("attention_bias", "attn_output.bias"), ("mlp_bias", "ffn_down.bias")] {
        config.insert(setting.into(), json!(header.file().tensor(&format!("blk.0.{bias}")).is_some()));
    }
    if let Some(rotary_dim) = header.find::<u32>("rope.dimension_count")?
        && rotary_dim != head_size
    {
        config.insert("partial_rotary_factor".into(), json!(f64::from(rotary_dim) / f64::from(head_size)));
    }
    Ok(())
}

/// Returns the scaling of rotary frequencies: by factors in tensors, or by one number.
fn rope_scaling(header: &GgufHeader) -> Result<Option<Value>, LoadError> {
    if let Some(divisors) = values(header, "rope_freqs.weight")? {
        return Ok(Some(json!({"rope_type": "divided", "divisors": divisors})));
    }
    let factors = [values(header, "rope_factors_short.weight")?, values(header, "rope_factors_long.weight")?];
    if let [Some(short), Some(long)] = factors {
        return Ok(Some(json!({
            "rope_type": "longrope",
            "short_factor": short,
            "long_factor": long,
            "attention_factor": header.find::<f32>("rope.scaling.attn_factor")?.map(f64::from),
        })));
    }
    let kind = header.find::<&str>("rope.scaling.type")?.filter(|kind| *kind != "none");
    let factor = header.find::<f32>("rope.scaling.factor")?.map(f64::from);
    Ok(kind.map(|kind| json!({"rope_type": kind, "factor": factor})))
}

/// Returns the values of a small f32 tensor, which are finite.
fn values(header: &GgufHeader, name: &str) -> Result<Option<Vec<f64>>, LoadError> {
    const MAX_VALUES: usize = 1 << 16;
    let tensor = header.file().tensor(name);
    let is_small = |tensor: &TensorInfo<'_>| tensor.dtype == GgmlType::F32 && tensor.data.len() <= 4 * MAX_VALUES;
    let Some(tensor) = tensor.filter(is_small) else { return Ok(None) };
    let data = tensor.data.read().map_err(|source| LoadError::TensorRead { name: name.to_owned(), source })?;
    let values = quant::dequantize(tensor.dtype, &data).unwrap_or_default();
    match values.iter().find(|value| !value.is_finite()) {
        Some(&found) => Err(LoadError::TensorNotFinite { name: name.to_owned(), found }),
        None => Ok(Some(values.into_iter().map(f64::from).collect())),
    }
}

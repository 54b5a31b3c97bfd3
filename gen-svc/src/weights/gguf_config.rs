//! A GGUF header as `config.json` would say it. What the header leaves out is left out here, or has the value that llama.cpp gives it.

use serde_json::{Map, Value, json};
use tandem_model_files::artifacts::gguf::{GgmlType, GgufError};

use super::gguf::GgufModel;
use super::quant;

/// Architectures that transformers calls otherwise.
const TYPES: &[(&str, &str)] = &[("qwen3moe", "qwen3_moe"), ("gemma3", "gemma3_text")];

/// A setting in `config.json`, and where a GGUF header has it, after the architecture's name.
const SIZES: &[(&str, &str)] = &[
    ("hidden_size", "embedding_length"),
    ("intermediate_size", "feed_forward_length"),
    ("num_hidden_layers", "block_count"),
    ("num_attention_heads", "attention.head_count"),
    ("num_key_value_heads", "attention.head_count_kv"),
    ("head_dim", "attention.key_length"),
    ("max_position_embeddings", "context_length"),
    ("num_local_experts", "expert_count"),
    ("num_experts_per_tok", "expert_used_count"),
    ("moe_intermediate_size", "expert_feed_forward_length"),
];

const NUMBERS: &[(&str, &str)] = &[
    ("rms_norm_eps", "attention.layer_norm_rms_epsilon"),
    ("rope_theta", "rope.freq_base"),
    ("attention_multiplier", "attention.scale"),
    ("embedding_multiplier", "embedding_scale"),
    ("residual_multiplier", "residual_scale"),
    ("logits_scaling", "logit_scale"),
    ("attn_logit_softcapping", "attn_logit_softcapping"),
    ("final_logit_softcapping", "final_logit_softcapping"),
];

type Config = Map<String, Value>;

/// The whole config.
pub(super) fn config(file: &GgufModel) -> Result<Value, GgufError> {
    let mut config = Map::new();
    config.insert("model_type".into(), json!(model_type(file)?));
    for (setting, key) in SIZES {
        if let Some(value) = file.find::<u32>(key)? {
            config.insert((*setting).into(), json!(value));
        }
    }
    for (setting, key) in NUMBERS {
        if let Some(value) = file.find::<f32>(key)? {
            config.insert((*setting).into(), json!(f64::from(value)));
        }
    }
    fill_in(file, &mut config)?;
    if let Some(window) = window(file)? {
        config.insert("sliding_window".into(), json!(window));
        config.insert("use_sliding_window".into(), json!(true));
    }
    if let Some(scaling) = rope_scaling(file)? {
        config.insert("rope_scaling".into(), scaling);
    }
    match file.architecture() {
        "gemma2" | "gemma3" => gemma(file, &mut config)?,
        "qwen3moe" => drop(config.insert("norm_topk_prob".into(), json!(true))), // of all that there are
        _ => {}
    }
    Ok(Value::Object(config))
}

/// Mistral's models come as Llama's; a window is what tells them apart.
fn model_type(file: &GgufModel) -> Result<&str, GgufError> {
    if file.architecture() == "llama" && window(file)?.is_some() {
        return Ok("mistral");
    }
    let known = TYPES.iter().find(|(here, _)| *here == file.architecture());
    Ok(known.map_or(file.architecture(), |(_, there)| there))
}

fn window(file: &GgufModel) -> Result<Option<u32>, GgufError> {
    Ok(file.find("attention.sliding_window")?.filter(|window| *window > 0))
}

/// Settings that the header implies.
fn fill_in(file: &GgufModel, config: &mut Config) -> Result<(), GgufError> {
    let heads = file.find::<u32>("attention.head_count")?.unwrap_or(0);
    let head_size = file.find("attention.key_length")?.map_or_else(|| head_size(file), Ok)?;
    config.entry("head_dim").or_insert(json!(head_size));
    config.entry("num_key_value_heads").or_insert(json!(heads));
    config.entry("rope_theta").or_insert(json!(10_000.0));
    config.insert("tie_word_embeddings".into(), json!(file.file().tensor("output.weight").is_none()));
    if let Some(table) = file.file().tensor("token_embd.weight") {
        config.insert("vocab_size".into(), json!(table.dims.first()));
    }
    for (setting, bias) in [("attention_bias", "attn_output.bias"), ("mlp_bias", "ffn_down.bias")] {
        config.insert(setting.into(), json!(file.file().tensor(&format!("blk.0.{bias}")).is_some()));
    }
    if let Some(rotary_dim) = file.find::<u32>("rope.dimension_count")?
        && rotary_dim != head_size
    {
        config.insert("partial_rotary_factor".into(), json!(f64::from(rotary_dim) / f64::from(head_size)));
    }
    Ok(())
}

/// What heads have if the header does not say.
fn head_size(file: &GgufModel) -> Result<u32, GgufError> {
    let heads = file.find::<u32>("attention.head_count")?.unwrap_or(0);
    let hidden = file.find::<u32>("embedding_length")?.unwrap_or(0);
    Ok(hidden.checked_div(heads).unwrap_or(0))
}

/// What the converter does to Gemma's models, and what llama.cpp knows of them by their number of layers.
fn gemma(file: &GgufModel, config: &mut Config) -> Result<(), GgufError> {
    const LARGEST: &[(&str, u32)] = &[("gemma2", 46), ("gemma3", 62)];
    config.insert("norm_offset".into(), json!(0)); // 1 is added to every weight
    let layers = file.find("block_count")?.unwrap_or(0);
    let size = match LARGEST.contains(&(file.architecture(), layers)) {
        true => head_size(file)?,
        false => file.find("attention.key_length")?.map_or_else(|| head_size(file), Ok)?,
    };
    config.insert("query_pre_attn_scalar".into(), json!(size));
    if let Some(theta) = file.find::<f32>("rope.freq_base_swa")? {
        config.insert("rope_local_base_freq".into(), json!(f64::from(theta)));
    }
    Ok(())
}

/// How frequencies are scaled: by factors that are tensors, or by one.
fn rope_scaling(file: &GgufModel) -> Result<Option<Value>, GgufError> {
    if let Some(divisors) = numbers(file, "rope_freqs.weight") {
        return Ok(Some(json!({"rope_type": "divided", "divisors": divisors})));
    }
    let factors = [numbers(file, "rope_factors_short.weight"), numbers(file, "rope_factors_long.weight")];
    if let [Some(short), Some(long)] = factors {
        return Ok(Some(json!({
            "rope_type": "longrope",
            "short_factor": short,
            "long_factor": long,
            "original_max_position_embeddings": file.find::<u32>("rope.scaling.original_context_length")?,
            "attention_factor": file.find::<f32>("rope.scaling.attn_factor")?.map(f64::from),
        })));
    }
    let kind = file.find::<&str>("rope.scaling.type")?.filter(|kind| *kind != "none");
    let factor = file.find::<f32>("rope.scaling.factor")?.map(f64::from);
    Ok(kind.map(|kind| json!({"rope_type": kind, "factor": factor})))
}

/// A small tensor of f32, as numbers.
fn numbers(file: &GgufModel, name: &str) -> Option<Vec<f64>> {
    const MOST: usize = 1 << 16;
    let tensor =
        file.file().tensor(name).filter(|tensor| tensor.dtype == GgmlType::F32 && tensor.data.len() <= 4 * MOST)?;
    let values = quant::dequantize(tensor.dtype, tensor.data)?;
    Some(values.into_iter().map(f64::from).collect())
}

//! Gemma 4: layers without a window have larger heads than the others, and may use keys as values.
//! The last layers may share keys and values, and each layer may have its own input. Reference:
//! transformers, `models/gemma4/modeling_gemma4.py`.

use serde_json::json;

use super::gemma2;
use super::llama::{self, Defaults, Shared, path};
use crate::models::architecture::Architecture;
use crate::models::config::{Config, ConfigError, unsupported};
use crate::models::decoder::{
    Attention, Decoder, FeedForward, Gated, InputBranch, Layer, LayerInputs, Matrix, Mixer, Norm, Pairs,
};
use crate::models::rope::{self, RopeSetting, Sections};
use crate::models::windows;

/// The rotary embedding of layers without a window.
const GLOBAL: RopeSetting =
    RopeSetting { default_theta: 1_000_000.0, partial: true, sections: Sections::Either, ..rope::ONLY };

/// The rotary embedding of layers with a window.
const LOCAL: RopeSetting = RopeSetting { layer_type: "sliding_attention", sections: Sections::Either, ..rope::ONLY };

/// Defaults of settings that are not in the config. The rotary embeddings depend on the head size of
/// each type of layer.
const DEFAULTS: Defaults =
    Defaults { layers: 30, vocabulary: 262_144, context: 131_072, ropes: &[], ..gemma2::DEFAULTS };

const DEFAULT_WINDOW_TOKENS: usize = 512;
const DEFAULT_PATTERN_LAYERS: usize = 6;
const DEFAULT_GLOBAL_HEAD_SIZE: usize = 512;
const DEFAULT_INPUT_SIZE: usize = 256;

/// The row of the language model.
pub(in crate::models) const TEXT: Architecture = Architecture { name: "gemma4_text", describe, gguf: None };

fn describe(config: &Config<'_>) -> Result<Decoder, ConfigError> {
    config.require("enable_moe_block", &json!(false))?;
    let shared = Shared::read(config, &DEFAULTS)?;
    let mut decoder = llama::decoder(config, &DEFAULTS)?;
    gemma2::add_output_norms(&mut decoder);
    gemma2::scale_ends(&mut decoder, config)?;
    add_windows(&mut decoder, config)?;
    add_attention(&mut decoder, config, &shared)?;
    llama::add_qk_norms(&mut decoder);
    use_keys_as_values(&mut decoder, config)?;
    share_pairs(&mut decoder, config, &shared)?;
    add_ropes(&mut decoder, config)?;
    add_inputs(&mut decoder, config, &shared)?;
    for (i, layer) in decoder.layers.iter_mut().enumerate() {
        layer.scale = Some(format!("{}.layer_scalar", path(i)));
    }
    Ok(decoder)
}

/// Adds windows. The last layer never has one.
fn add_windows(decoder: &mut Decoder, config: &Config<'_>) -> Result<(), ConfigError> {
    let window = config.find_size("sliding_window")?.unwrap_or(DEFAULT_WINDOW_TOKENS);
    windows::add(decoder, config, Some(window), |i| !(i + 1).is_multiple_of(DEFAULT_PATTERN_LAYERS))?;
    decoder.attentions_mut().last().into_iter().for_each(|attention| attention.window = None);
    Ok(())
}

/// Replaces the attention of every layer by one with the heads of its type.
fn add_attention(decoder: &mut Decoder, config: &Config<'_>, shared: &Shared) -> Result<(), ConfigError> {
    let image_blocks = image_blocks(config)?;
    for (i, attention) in decoder.attentions_mut().enumerate() {
        let window = attention.window;
        *attention = Attention {
            window,
            scale: 1.0,
            rope: Some(usize::from(window.is_some())),
            image_blocks: image_blocks && window.is_some(),
            value_epsilon: Some(shared.epsilon),
            ..heads(config, i, window.is_none(), shared)?.attention(&format!("{}.self_attn", path(i)))
        };
    }
    Ok(())
}

/// Returns true if the tokens of an image attend to each other.
fn image_blocks(config: &Config<'_>) -> Result<bool, ConfigError> {
    const NAME: &str = "use_bidirectional_attention";
    match config.find_text(NAME)? {
        None => Ok(false),
        Some("vision") => Ok(true),
        Some(other) => Err(unsupported(NAME, other)),
    }
}

/// Returns the settings with the heads of layer `i`. transformers 5 writes them for each layer with
/// other heads. Published configs have them once for all layers without a window.
fn heads(config: &Config<'_>, i: usize, global: bool, shared: &Shared) -> Result<Shared, ConfigError> {
    const NAME: &str = "per_layer_config";
    let (kv_heads, head_size) = if config.has(NAME) || config.is_null(NAME) {
        let Some(own) = config.entry_of_layer(NAME, i)? else { return Ok(*shared) };
        own.allow(NAME, &["head_dim", "num_key_value_heads"])?;
        (own.find_size("num_key_value_heads")?, own.find_size("head_dim")?)
    } else if global {
        let has_kv_heads = config.flag_or("attention_k_eq_v", false)?;
        let kv_heads = if has_kv_heads { config.find_size("num_global_key_value_heads")? } else { None };
        (kv_heads, Some(config.find_size("global_head_dim")?.unwrap_or(DEFAULT_GLOBAL_HEAD_SIZE)))
    } else {
        (None, None)
    };
    shared.with_heads(kv_heads.unwrap_or(shared.kv_heads), head_size.unwrap_or(shared.head_size))
}

/// Removes the values of layers without a window, if keys are used as values.
fn use_keys_as_values(decoder: &mut Decoder, config: &Config<'_>) -> Result<(), ConfigError> {
    if config.flag_or("attention_k_eq_v", false)? {
        for attention in decoder.attentions_mut().filter(|attention| attention.window.is_none()) {
            attention.pairs = Pairs::KeysAsValues;
            attention.qkv.truncate(2);
        }
    }
    Ok(())
}

/// Removes keys and values of the last layers, which use those of the last earlier layer of the same
/// type. Their feed-forward may have double size.
fn share_pairs(decoder: &mut Decoder, config: &Config<'_>, shared: &Shared) -> Result<(), ConfigError> {
    const NAME: &str = "num_kv_shared_layers";
    let count = config.find_whole(NAME)?.unwrap_or(0);
    let is_wide = config.flag_or("use_double_wide_mlp", false)?;
    let first = decoder.layers.len().checked_sub(count).ok_or_else(|| unsupported(NAME, count))?;
    for i in first..decoder.layers.len() {
        let (earlier, rest) = decoder.layers.split_at_mut(i);
        let Mixer::Attention(attention) = &mut rest[0].mixer else { continue };
        let has_equal_pairs = |layer: &Layer| layer.attention().is_some_and(|other| have_equal_pairs(other, attention));
        let source = earlier[..first].iter().rposition(has_equal_pairs);
        attention.pairs = Pairs::Shared(source.ok_or_else(|| unsupported(NAME, count))?);
        attention.qkv.truncate(1);
        attention.qk_norm[1] = None;
        if is_wide {
            let Shared { hidden, feed_forward: size, activation, .. } = *shared;
            let wide = Gated::split(&format!("{}.mlp", path(i)), hidden, 2 * size, activation, false);
            rest[0].feed_forward = FeedForward::Gated(wide);
        }
    }
    Ok(())
}

/// Returns true if two layers are of one type, with the same sizes of keys.
fn have_equal_pairs(a: &Attention, b: &Attention) -> bool {
    let of = |attention: &Attention| (attention.window.is_some(), attention.kv_heads, attention.head_size);
    of(a) == of(b)
}

/// Adds the rotary embedding of each type of layer, for the heads of its first layer.
fn add_ropes(decoder: &mut Decoder, config: &Config<'_>) -> Result<(), ConfigError> {
    let defaults = json!({"rope_parameters": {
        "full_attention": {"rope_type": "proportional", "partial_rotary_factor": 0.25, "rope_theta": 1e6},
        "sliding_attention": {"rope_type": "default", "rope_theta": 1e4},
    }});
    let config = if config.has("rope_parameters") { *config } else { Config::new(&defaults) };
    for (setting, is_global) in [(GLOBAL, true), (LOCAL, false)] {
        let mut sizes = decoder.attentions().filter(|it| it.window.is_none() == is_global).map(|it| it.head_size);
        let size = sizes.next().unwrap_or(2);
        if let Some(other) = sizes.find(|other| *other != size) {
            return Err(unsupported("head_dim", format!("{size} and {other} in layers of one type")));
        }
        drop(sizes);
        decoder.ropes.push(setting.read(&config, size, decoder.context)?);
    }
    Ok(())
}

/// Adds the input of each layer, if the model has such inputs.
fn add_inputs(decoder: &mut Decoder, config: &Config<'_>, shared: &Shared) -> Result<(), ConfigError> {
    let size = config.find_whole("hidden_size_per_layer_input")?.unwrap_or(DEFAULT_INPUT_SIZE);
    if size == 0 {
        return Ok(());
    }
    decoder.layer_inputs = Some(layer_inputs(decoder, config, shared, size)?);
    for (i, layer) in decoder.layers.iter_mut().enumerate() {
        let name = |name| format!("{}.{name}", path(i));
        layer.input = Some(InputBranch {
            gate: Matrix::new(name("per_layer_input_gate"), size, shared.hidden),
            activation: shared.activation,
            output: Matrix::new(name("per_layer_projection"), shared.hidden, size),
            norm: shared.norm(name("post_per_layer_input_norm")),
        });
    }
    Ok(())
}

fn layer_inputs(
    decoder: &Decoder,
    config: &Config<'_>,
    shared: &Shared,
    size: usize,
) -> Result<LayerInputs, ConfigError> {
    let rows = config.size_or("vocab_size_per_layer_input", DEFAULTS.vocabulary)?;
    if rows < decoder.vocabulary {
        return Err(unsupported("vocab_size_per_layer_input", rows));
    }
    let pad = config.find_whole("pad_token_id")?.unwrap_or(0);
    let image_token = u32::try_from(pad).ok().filter(|pad| (*pad as usize) < rows);
    let all = decoder.layers.len() * size;
    Ok(LayerInputs {
        size,
        table: Matrix::new("model.embed_tokens_per_layer".into(), rows, all),
        table_scale: (size as f32).sqrt(),
        image_token: image_token.ok_or_else(|| unsupported("pad_token_id", pad))?,
        projection: Matrix::new("model.per_layer_model_projection".into(), all, shared.hidden),
        projection_scale: (shared.hidden as f32).sqrt().recip(),
        norm: Norm { size, ..shared.norm("model.per_layer_projection_norm".into()) },
        scale: 0.5_f32.sqrt(),
    })
}

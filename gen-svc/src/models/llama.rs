//! Llama: RMSNorm, rotary positions, grouped-query attention, a gated feed-forward. Reference: transformers,
//! `models/llama/modeling_llama.py`. Most other architectures are this one with some differences.

use serde_json::{Value, json};

use super::config::{Config, unsupported};
use super::decoder::{Attention, Decoder, FeedForward, Gated, Layer, LogitRule, Matrix, Norm, Norms};
use super::rope::{self, RopeSetting};
use crate::error::Error;

const MOST_LAYERS: usize = 1024;
/// Of heads, and of numbers in one.
const MOST_HEADS: usize = 1 << 16;

/// What a config may leave out, because transformers knows it.
#[derive(Debug, Clone, Copy)]
pub(super) struct Defaults {
    /// Whether the head is the embedding table.
    pub(super) tied: bool,
    /// Of the norms.
    pub(super) epsilon: f32,
    /// H.
    pub(super) heads: Option<usize>,
    /// K. None: H.
    pub(super) kv_heads: Option<usize>,
    /// D. None: E / H.
    pub(super) head_size: Option<usize>,
    /// V.
    pub(super) vocabulary: Option<usize>,
    /// Positions at most.
    pub(super) context: Option<usize>,
    /// The setting that names the activation, and its default.
    pub(super) activation: (&'static str, &'static str),
    /// The rotations, as layers choose from them. The first is what they have unless they are told otherwise.
    pub(super) ropes: &'static [RopeSetting],
}

/// Llama's own.
pub(super) const DEFAULTS: Defaults = Defaults {
    tied: false,
    epsilon: 1e-6,
    heads: None,
    kv_heads: None,
    head_size: None,
    vocabulary: None,
    context: None,
    activation: ("hidden_act", "silu"),
    ropes: &[rope::ONLY],
};

pub(super) fn describe(config: &Config<'_>) -> Result<Decoder, Error> {
    config.require("num_local_experts", &json!(0))?; // Mixtral's, in a GGUF
    decoder(config, &DEFAULTS)
}

/// The sizes of a model.
#[derive(Debug, Clone, Copy)]
struct Sizes {
    hidden: usize,
    heads: usize,
    kv_heads: usize,
    head_size: usize,
    epsilon: f32,
}

/// What the config describes, if the model is Llama.
pub(super) fn decoder(config: &Config<'_>, defaults: &Defaults) -> Result<Decoder, Error> {
    let sizes = Sizes::read(config, defaults)?;
    let (vocabulary, hidden) = (config.size_or("vocab_size", defaults.vocabulary)?, sizes.hidden);
    let layers = config.size_up_to("num_hidden_layers", MOST_LAYERS)?;
    let tied = config.flag_or("tie_word_embeddings", defaults.tied)?;
    let ropes = defaults.ropes.iter().map(|rope| rope.read(config, sizes.head_size)).collect::<Result<_, _>>()?;
    let (size, bias) = (config.size("intermediate_size")?, config.flag_or("mlp_bias", false)?);
    let activation = config.activation(defaults.activation.0, defaults.activation.1)?;
    let attention_bias = config.flag_or("attention_bias", false)?;
    let layer = |i| {
        let path = path(i);
        let gated = Gated::split(&format!("{path}.mlp"), hidden, size, activation, bias);
        Layer {
            attention: sizes.attention(&format!("{path}.self_attn"), attention_bias),
            feed_forward: FeedForward::Gated(gated),
            norms: Norms {
                before_attention: sizes.norm(format!("{path}.input_layernorm"), hidden),
                after_attention: None,
                before_feed_forward: sizes.norm(format!("{path}.post_attention_layernorm"), hidden),
                after_feed_forward: None,
            },
            residual_scale: 1.0,
        }
    };
    Ok(Decoder {
        vocabulary,
        hidden,
        context: config.size_or("max_position_embeddings", defaults.context)?,
        embeddings: Matrix::new("model.embed_tokens".into(), vocabulary, hidden),
        embed_scale: 1.0,
        ropes,
        layers: (0..layers).map(layer).collect(),
        final_norm: sizes.norm("model.norm".into(), hidden),
        head: (!tied).then(|| Matrix::new("lm_head".into(), vocabulary, hidden)),
        logits: LogitRule { scale: 1.0, softcap: None },
    })
}

/// Where the tensors of layer `i` are.
pub(super) fn path(i: usize) -> String {
    format!("model.layers.{i}")
}

/// Norms of queries and keys, over the numbers of each head, in every layer.
pub(super) fn add_qk_norms(decoder: &mut Decoder) {
    for (i, layer) in decoder.layers.iter_mut().enumerate() {
        let size = layer.attention.head_size;
        let norm =
            |name| Norm { name: format!("{}.self_attn.{name}", path(i)), size, ..layer.norms.before_attention.clone() };
        layer.attention.qk_norm = Some([norm("q_norm"), norm("k_norm")]);
    }
}

/// Gives a window to the layers that have one: those that `layer_types` says, or else those that `slides` says.
pub(super) fn add_windows(
    decoder: &mut Decoder,
    config: &Config<'_>,
    window: Option<usize>,
    slides: impl Fn(usize) -> bool,
) -> Result<(), Error> {
    let sliding = sliding_layers(config, decoder.layers.len(), slides)?;
    for (layer, sliding) in decoder.layers.iter_mut().zip(sliding) {
        layer.attention.window = window.filter(|_| sliding);
    }
    Ok(())
}

/// Which layers have a window.
pub(super) fn sliding_layers(
    config: &Config<'_>,
    count: usize,
    slides: impl Fn(usize) -> bool,
) -> Result<Vec<bool>, Error> {
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

impl Sizes {
    fn read(config: &Config<'_>, defaults: &Defaults) -> Result<Self, Error> {
        let hidden = config.size("hidden_size")?;
        let heads = config.size_or("num_attention_heads", defaults.heads)?;
        if heads > MOST_HEADS {
            return Err(unsupported("num_attention_heads", heads));
        }
        let kv_heads = config.find_size("num_key_value_heads")?.or(defaults.kv_heads).unwrap_or(heads);
        if !heads.is_multiple_of(kv_heads) {
            return Err(unsupported("num_key_value_heads", format!("{kv_heads} for {heads} query heads")));
        }
        let head_size = config.find_size("head_dim")?.or(defaults.head_size).unwrap_or(hidden / heads);
        if !head_size.is_multiple_of(2) || !(2..=MOST_HEADS).contains(&head_size) {
            return Err(unsupported("head_dim", head_size));
        }
        let epsilon = config.float_or("rms_norm_eps", defaults.epsilon)?;
        Ok(Self { hidden, heads, kv_heads, head_size, epsilon })
    }

    fn norm(&self, name: String, size: usize) -> Norm {
        Norm { name, size, epsilon: self.epsilon, offset: 0.0 }
    }

    fn attention(&self, path: &str, bias: bool) -> Attention {
        let Self { hidden, heads, kv_heads, head_size, .. } = *self;
        let matrix = |name, rows, columns| Matrix { bias, ..Matrix::new(format!("{path}.{name}"), rows, columns) };
        Attention {
            heads,
            kv_heads,
            head_size,
            scale: (head_size as f32).sqrt().recip(),
            softcap: None,
            window: None,
            rope: Some(0),
            qkv: vec![
                matrix("q_proj", heads * head_size, hidden),
                matrix("k_proj", kv_heads * head_size, hidden),
                matrix("v_proj", kv_heads * head_size, hidden),
            ],
            qk_norm: None,
            output: matrix("o_proj", hidden, heads * head_size),
        }
    }
}

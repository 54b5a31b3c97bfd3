//! Llama: RMSNorm, rotary positions, grouped-query attention, a gated feed-forward. Reference: transformers,
//! `models/llama/modeling_llama.py`. Most other architectures are this one with some differences.

use serde_json::json;

use super::config::{Config, unsupported};
use super::decoder::{Activation, Attention, Decoder, FeedForward, Gated, Layer, LogitRule, Matrix, Norm, Norms};
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

/// What all layers have in common.
#[derive(Debug, Clone, Copy)]
struct Shared {
    hidden: usize,
    heads: usize,
    kv_heads: usize,
    head_size: usize,
    feed_forward: usize,
    epsilon: f32,
    activation: Activation,
    attention_bias: bool,
    mlp_bias: bool,
}

/// What the config describes, if the model is Llama.
pub(super) fn decoder(config: &Config<'_>, defaults: &Defaults) -> Result<Decoder, Error> {
    let shared = Shared::read(config, defaults)?;
    let hidden = shared.hidden;
    let vocabulary = config.size_or("vocab_size", defaults.vocabulary)?;
    let layers = config.size_up_to("num_hidden_layers", MOST_LAYERS)?;
    let tied = config.flag_or("tie_word_embeddings", defaults.tied)?;
    Ok(Decoder {
        vocabulary,
        hidden,
        context: config.size_or("max_position_embeddings", defaults.context)?,
        embeddings: Matrix::new("model.embed_tokens".into(), vocabulary, hidden),
        embed_scale: 1.0,
        ropes: defaults.ropes.iter().map(|rope| rope.read(config, shared.head_size)).collect::<Result<_, _>>()?,
        layers: (0..layers).map(|i| shared.layer(&path(i))).collect(),
        final_norm: shared.norm("model.norm".into()),
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

impl Shared {
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
        Ok(Self {
            hidden,
            heads,
            kv_heads,
            head_size,
            feed_forward: config.size("intermediate_size")?,
            epsilon: config.float_or("rms_norm_eps", defaults.epsilon)?,
            activation: config.activation(defaults.activation.0, defaults.activation.1)?,
            attention_bias: config.flag_or("attention_bias", false)?,
            mlp_bias: config.flag_or("mlp_bias", false)?,
        })
    }

    /// The layer whose tensors are below `path`.
    fn layer(&self, path: &str) -> Layer {
        let Self { hidden, feed_forward, activation, mlp_bias, .. } = *self;
        Layer {
            attention: self.attention(&format!("{path}.self_attn")),
            feed_forward: FeedForward::Gated(Gated::split(
                &format!("{path}.mlp"),
                hidden,
                feed_forward,
                activation,
                mlp_bias,
            )),
            norms: Norms {
                before_attention: self.norm(format!("{path}.input_layernorm")),
                after_attention: None,
                before_feed_forward: self.norm(format!("{path}.post_attention_layernorm")),
                after_feed_forward: None,
            },
            residual_scale: 1.0,
        }
    }

    fn norm(&self, name: String) -> Norm {
        Norm { name, size: self.hidden, epsilon: self.epsilon, offset: 0.0 }
    }

    fn attention(&self, path: &str) -> Attention {
        let Self { hidden, heads, kv_heads, head_size, attention_bias: bias, .. } = *self;
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

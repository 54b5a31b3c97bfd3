//! Llama: RMSNorm, rotary positions, grouped-query attention, a gated feed-forward. Reference:
//! transformers, `models/llama/modeling_llama.py`. Most other architectures modify this one.

use crate::models::architecture::Architecture;
use crate::weights::gguf::architecture::{Divisors, GgufArchitecture};
use serde_json::json;

use crate::models::config::{Config, ConfigError, unsupported};
use crate::models::decoder::{
    Activation, Attention, Decoder, FeedForward, Gated, Layer, LogitRule, Matrix, Mixer, Norm, Norms, Pairs,
};
use crate::models::rope::{self, RopeSetting};

/// The flag of biases of the four matrices of attention.
pub(super) const ATTENTION_BIAS: &str = "attention_bias";
/// The flag of biases of the three matrices of the feed-forward.
pub(super) const MLP_BIAS: &str = "mlp_bias";

const MAX_LAYERS: usize = 1024;
/// The most heads, and the largest head.
pub(super) const MAX_HEADS: usize = 1 << 16;

/// This architecture's row in [`ARCHITECTURES`](super::ARCHITECTURES).
pub(in crate::models) const ARCHITECTURE: Architecture = Architecture { name: "llama", describe, gguf: Some(GGUF) };

/// Mixtral's files have the same name, and experts.
const GGUF: GgufArchitecture = GgufArchitecture {
    interleaved: true,
    integers: &[("num_local_experts", "expert_count")],
    biases: GGUF_BIASES,
    divisors: Divisors::OfScaling,
    ..GgufArchitecture::named("llama")
};

/// The biases of a GGUF file other than those of queries, keys and values.
pub(super) const GGUF_BIASES: &[&str] = &["self_attn.o_proj", "mlp.gate_proj", "mlp.up_proj", "mlp.down_proj"];

/// Defaults of an architecture's class in transformers, for settings that the config leaves out.
#[derive(Debug, Clone, Copy)]
pub(super) struct Defaults {
    /// True if the head is the embedding table.
    pub(super) tied: bool,
    /// The epsilon of the norms.
    pub(super) epsilon: f32,
    /// E, the hidden size.
    pub(super) hidden: usize,
    /// F, the feed-forward size.
    pub(super) feed_forward: usize,
    /// The number of layers.
    pub(super) layers: usize,
    /// H, the query heads.
    pub(super) heads: usize,
    /// K, the key/value heads. `None`: H.
    pub(super) kv_heads: Option<usize>,
    /// D, the head size. `None`: E / H.
    pub(super) head_size: Option<usize>,
    /// V, the size of the vocabulary.
    pub(super) vocabulary: usize,
    /// The most positions.
    pub(super) context: usize,
    /// The flags of biases that the class has. Others are ignored.
    pub(super) biases: &'static [&'static str],
    /// The setting that names the activation, and its default.
    pub(super) activation: (&'static str, &'static str),
    /// The rotary embeddings. Layers use the first, unless the architecture selects another.
    pub(super) ropes: &'static [RopeSetting],
}

/// Llama's defaults.
pub(super) const DEFAULTS: Defaults = Defaults {
    tied: false,
    epsilon: 1e-6,
    hidden: 4096,
    feed_forward: 11_008,
    layers: 32,
    heads: 32,
    kv_heads: None,
    head_size: None,
    vocabulary: 32_000,
    context: 2048,
    biases: &[ATTENTION_BIAS, MLP_BIAS],
    activation: ("hidden_act", "silu"),
    ropes: &[rope::ONLY],
};

fn describe(config: &Config<'_>) -> Result<Decoder, ConfigError> {
    config.require("num_local_experts", &json!(0))?; // a Mixtral GGUF has experts
    decoder(config, &DEFAULTS)
}

/// The settings that all layers share.
#[derive(Debug, Clone, Copy)]
pub(super) struct Shared {
    pub(super) hidden: usize,
    pub(super) heads: usize,
    pub(super) kv_heads: usize,
    pub(super) head_size: usize,
    pub(super) feed_forward: usize,
    pub(super) epsilon: f32,
    pub(super) activation: Activation,
    attention_bias: bool,
    mlp_bias: bool,
}

/// Describes the model as if the config were of Llama.
pub(super) fn decoder(config: &Config<'_>, defaults: &Defaults) -> Result<Decoder, ConfigError> {
    config.require("is_causal", &json!(true))?;
    let shared = Shared::read(config, defaults)?;
    let hidden = shared.hidden;
    let vocabulary = config.size_or("vocab_size", defaults.vocabulary)?;
    let layers = config.size_or("num_hidden_layers", defaults.layers)?;
    if layers > MAX_LAYERS {
        return Err(unsupported("num_hidden_layers", layers));
    }
    let context = config.size_or("max_position_embeddings", defaults.context)?;
    let tied = config.any_flag_or("tie_word_embeddings", defaults.tied)?;
    Ok(Decoder {
        vocabulary,
        hidden,
        context,
        embeddings: Matrix::new("model.embed_tokens".into(), vocabulary, hidden),
        embed_scale: 1.0,
        layer_inputs: None,
        ropes: defaults
            .ropes
            .iter()
            .map(|rope| rope.read(config, shared.head_size, context))
            .collect::<Result<_, _>>()?,
        layers: (0..layers).map(|i| shared.layer(&path(i))).collect(),
        final_norm: shared.norm("model.norm".into()),
        head: (!tied).then(|| Matrix::new("lm_head".into(), vocabulary, hidden)),
        logits: LogitRule { scale: 1.0, softcap: None },
    })
}

/// Returns the path of the tensors of layer `i`.
pub(super) fn path(i: usize) -> String {
    format!("model.layers.{i}")
}

/// Adds norms of queries and keys, over each head, to every layer.
pub(super) fn add_qk_norms(decoder: &mut Decoder) {
    for (i, Layer { mixer, norms, .. }) in decoder.layers.iter_mut().enumerate() {
        let Mixer::Attention(attention) = mixer else { continue };
        let size = attention.head_size;
        let norm =
            |name| Norm { name: format!("{}.self_attn.{name}", path(i)), size, ..norms.before_attention.clone() };
        attention.qk_norm = ["q_norm", "k_norm"].map(|name| Some(norm(name)));
    }
}

impl Shared {
    pub(super) fn read(config: &Config<'_>, defaults: &Defaults) -> Result<Self, ConfigError> {
        let hidden = config.size_or("hidden_size", defaults.hidden)?;
        let heads = config.size_or("num_attention_heads", defaults.heads)?;
        if heads > MAX_HEADS {
            return Err(unsupported("num_attention_heads", heads));
        }
        let kv_heads = config.size_unless_null("num_key_value_heads", defaults.kv_heads.unwrap_or(heads))?;
        let kv_heads = kv_heads.unwrap_or(heads);
        let head_size = config.find_size("head_dim")?.or(defaults.head_size).unwrap_or(hidden / heads);
        Self {
            hidden,
            heads,
            kv_heads,
            head_size,
            feed_forward: config.size_or("intermediate_size", defaults.feed_forward)?,
            epsilon: config.float_or("rms_norm_eps", defaults.epsilon)?,
            activation: config.activation(defaults.activation.0, defaults.activation.1)?,
            attention_bias: defaults.biases.contains(&ATTENTION_BIAS) && config.flag_or(ATTENTION_BIAS, false)?,
            mlp_bias: defaults.biases.contains(&MLP_BIAS) && config.flag_or(MLP_BIAS, false)?,
        }
        .with_heads(kv_heads, head_size)
    }

    /// Returns the same settings with other key/value heads of another size. Fails if
    /// they do not fit the query heads.
    pub(super) fn with_heads(self, kv_heads: usize, head_size: usize) -> Result<Self, ConfigError> {
        let heads = self.heads;
        if !heads.is_multiple_of(kv_heads) {
            return Err(unsupported("num_key_value_heads", format!("{kv_heads} for {heads} query heads")));
        }
        if !head_size.is_multiple_of(2) || !(2..=MAX_HEADS).contains(&head_size) {
            return Err(unsupported("head_dim", head_size));
        }
        Ok(Self { kv_heads, head_size, ..self })
    }

    /// Returns the layer whose tensors are below `path`.
    fn layer(&self, path: &str) -> Layer {
        let Self { hidden, feed_forward, activation, mlp_bias, .. } = *self;
        Layer {
            mixer: Mixer::Attention(self.attention(&format!("{path}.self_attn"))),
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
            input: None,
            scale: None,
        }
    }

    /// Returns a norm of hidden rows.
    pub(super) fn norm(&self, name: String) -> Norm {
        Norm { name, size: self.hidden, epsilon: self.epsilon, offset: 0.0 }
    }

    /// Returns the attention whose tensors are below `path`.
    pub(super) fn attention(&self, path: &str) -> Attention {
        let Self { hidden, heads, kv_heads, head_size, attention_bias: bias, .. } = *self;
        let matrix = |name, rows, columns| Matrix { bias, ..Matrix::new(format!("{path}.{name}"), rows, columns) };
        Attention {
            heads,
            kv_heads,
            head_size,
            scale: (head_size as f32).sqrt().recip(),
            softcap: None,
            window: None,
            image_blocks: false,
            rope: Some(0),
            pairs: Pairs::Computed,
            qkv: vec![
                matrix("q_proj", heads * head_size, hidden),
                matrix("k_proj", kv_heads * head_size, hidden),
                matrix("v_proj", kv_heads * head_size, hidden),
            ],
            is_gated: false,
            qk_norm: [None, None],
            value_epsilon: None,
            output: matrix("o_proj", hidden, heads * head_size),
        }
    }
}

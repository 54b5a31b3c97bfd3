//! Llama: RMSNorm, rotary positions, grouped-query attention, SwiGLU. Reference: transformers, `models/llama/modeling_llama.py`.
//!
//! Shapes: T tokens of this call, E hidden size, H query heads, K key/value heads, D head size, F feed-forward size, V vocabulary.

use serde::Deserialize;
use serde_json::{Value, json};
use tch::{Device, Kind, Tensor};

use super::{Logits, Model, ModelShape, Run, require, require_size};
use crate::error::Error;
use crate::layers::{Linear, RmsNorm, Rope, Rotation};
use crate::paged::{KvShape, PagedKv, Runs};
use crate::weights::{Placement, Weights};

/// The settings of `config.json` that shape the computation.
#[derive(Debug, Clone, Deserialize)]
struct Config {
    hidden_size: i64,
    intermediate_size: i64,
    num_hidden_layers: i64,
    num_attention_heads: i64,
    num_key_value_heads: i64,
    head_dim: i64,
    vocab_size: i64,
    max_position_embeddings: i64,
    rms_norm_eps: f64,
    rope_theta: f64,
    tie_word_embeddings: bool,
}

impl Config {
    fn read(config: &Value) -> Result<Self, Error> {
        require(config, "hidden_act", &json!("silu"))?;
        for setting in ["attention_bias", "mlp_bias"] {
            require(config, setting, &json!(false))?;
        }
        for setting in ["num_local_experts", "sliding_window"] {
            require(config, setting, &json!(0))?;
        }
        require(config, "partial_rotary_factor", &json!(1))?;
        require(&config["rope_scaling"], "rope_type", &json!("default"))?;
        let config = Self::deserialize(config).map_err(Error::Config)?;
        config.check_sizes()?;
        Ok(config)
    }

    fn kv_shape(&self, placement: Placement) -> KvShape {
        KvShape {
            layers: self.num_hidden_layers as usize,
            heads: self.num_key_value_heads,
            head_size: self.head_dim,
            placement,
        }
    }

    fn check_sizes(&self) -> Result<(), Error> {
        require_size("hidden_size", self.hidden_size)?;
        require_size("intermediate_size", self.intermediate_size)?;
        require_size("num_hidden_layers", self.num_hidden_layers)?;
        require_size("num_attention_heads", self.num_attention_heads)?;
        require_size("num_key_value_heads", self.num_key_value_heads)?;
        require_size("head_dim", self.head_dim)?;
        require_size("vocab_size", self.vocab_size)?;
        require_size("max_position_embeddings", self.max_position_embeddings)?;
        if self.num_attention_heads % self.num_key_value_heads != 0 {
            let value = format!("{} for {} query heads", self.num_key_value_heads, self.num_attention_heads);
            return Err(Error::UnsupportedSetting { setting: "num_key_value_heads", value });
        }
        if self.head_dim % 2 != 0 {
            return Err(Error::UnsupportedSetting { setting: "head_dim", value: self.head_dim.to_string() });
        }
        Ok(())
    }
}

/// What every layer needs to know of this call.
struct Call {
    rotation: Rotation,
    runs: Runs,
}

#[derive(Debug)]
struct Attention {
    qkv: Linear,
    output: Linear,
    heads: [i64; 2],
    head_size: i64,
}

impl Attention {
    fn load(config: &Config, weights: &Weights<'_>) -> Result<Self, Error> {
        let (queries, pairs) =
            (config.num_attention_heads * config.head_dim, config.num_key_value_heads * config.head_dim);
        let parts = [("q_proj", queries), ("k_proj", pairs), ("v_proj", pairs)];
        Ok(Self {
            qkv: Linear::stacked(weights, &parts, config.hidden_size)?,
            output: Linear::load(weights, "o_proj", [config.hidden_size, queries])?,
            heads: [config.num_attention_heads, config.num_key_value_heads],
            head_size: config.head_dim,
        })
    }

    /// `[T, E] -> [T, E]`
    fn forward(&self, x: &Tensor, call: &Call, kv: &PagedKv, layer: usize) -> Result<Tensor, Error> {
        let [queries, pairs] = self.heads;
        let qkv = self.qkv.forward(x)?.f_view([-1, queries + 2 * pairs, self.head_size])?; // [T, H + 2K, D]
        let turned = call.rotation.apply(&qkv.f_narrow(1, 0, queries + pairs)?)?; // [T, H + K, D]
        let q = turned.f_narrow(1, 0, queries)?; // [T, H, D]
        let k = turned.f_narrow(1, queries, pairs)?; // [T, K, D]
        let v = qkv.f_narrow(1, queries + pairs, pairs)?; // [T, K, D]
        kv.write(layer, &call.runs, &k, &v)?;
        self.output.forward(&kv.attend(layer, &call.runs, &q)?)
    }
}

#[derive(Debug)]
struct FeedForward {
    gate_up: Linear,
    down: Linear,
    size: i64,
}

impl FeedForward {
    fn load(config: &Config, weights: &Weights<'_>) -> Result<Self, Error> {
        let size = config.intermediate_size;
        Ok(Self {
            gate_up: Linear::stacked(weights, &[("gate_proj", size), ("up_proj", size)], config.hidden_size)?,
            down: Linear::load(weights, "down_proj", [config.hidden_size, size])?,
            size,
        })
    }

    /// `[T, E] -> [T, E]`
    fn forward(&self, x: &Tensor) -> Result<Tensor, Error> {
        let both = self.gate_up.forward(x)?; // [T, 2F]
        let gate = both.f_narrow(1, 0, self.size)?.f_silu()?;
        self.down.forward(&gate.f_mul(&both.f_narrow(1, self.size, self.size)?)?)
    }
}

#[derive(Debug)]
struct Layer {
    before_attention: RmsNorm,
    attention: Attention,
    before_feed_forward: RmsNorm,
    feed_forward: FeedForward,
}

impl Layer {
    fn load(config: &Config, weights: &Weights<'_>) -> Result<Self, Error> {
        let norm = |name| RmsNorm::load(weights, name, config.hidden_size, config.rms_norm_eps);
        Ok(Self {
            before_attention: norm("input_layernorm")?,
            attention: Attention::load(config, &weights.at("self_attn"))?,
            before_feed_forward: norm("post_attention_layernorm")?,
            feed_forward: FeedForward::load(config, &weights.at("mlp"))?,
        })
    }

    /// `[T, E] -> [T, E]`
    fn forward(&self, x: &Tensor, call: &Call, kv: &PagedKv, layer: usize) -> Result<Tensor, Error> {
        let x = x.f_add(&self.attention.forward(&self.before_attention.forward(x)?, call, kv, layer)?)?;
        Ok(x.f_add(&self.feed_forward.forward(&self.before_feed_forward.forward(&x)?)?)?)
    }
}

/// The whole model.
#[derive(Debug)]
struct Llama {
    config: Config,
    placement: Placement,
    embeddings: Tensor,
    rope: Rope,
    layers: Vec<Layer>,
    norm: RmsNorm,
    head: Linear,
    kv: PagedKv,
}

/// Loads a Llama model. Settings that it does not have are refused here, so that computing never branches on them.
pub(super) fn load(config: &Value, weights: &Weights<'_>) -> Result<Box<dyn Model>, Error> {
    let config = Config::read(config)?;
    let placement = weights.placement();
    let table = [config.vocab_size, config.hidden_size];
    let embeddings = weights.tensor("model.embed_tokens.weight", &table)?;
    let head =
        if config.tie_word_embeddings { Linear::tied(&embeddings) } else { Linear::load(weights, "lm_head", table)? };
    let layer = |i| Layer::load(&config, &weights.at("model.layers").at(&format!("{i}")));
    Ok(Box::new(Llama {
        embeddings,
        rope: Rope::new(config.head_dim, config.rope_theta, placement.dtype, placement.device)?,
        layers: (0..config.num_hidden_layers).map(layer).collect::<Result<_, _>>()?,
        norm: RmsNorm::load(weights, "model.norm", config.hidden_size, config.rms_norm_eps)?,
        head,
        kv: PagedKv::new(config.kv_shape(placement)),
        config,
        placement,
    }))
}

impl Llama {
    /// `[T, E]`, before the last norm.
    fn hidden(&self, runs: &[Run<'_>]) -> Result<Tensor, Error> {
        let device = self.placement.device;
        let ids: Vec<i64> = runs.iter().flat_map(|run| run.tokens).map(|&id| i64::from(id)).collect();
        let ids = Tensor::f_from_slice(&ids)?.f_to_device(device)?;
        let runs = Runs::new(runs, self.placement)?;
        let call = Call { rotation: self.rope.at(runs.positions())?, runs };
        let mut x = Tensor::f_embedding(&self.embeddings, &ids, -1, false, false)?;
        for (i, layer) in self.layers.iter().enumerate() {
            x = layer.forward(&x, &call, &self.kv, i)?;
        }
        Ok(x)
    }
}

impl Model for Llama {
    fn shape(&self) -> ModelShape {
        ModelShape {
            vocabulary: self.config.vocab_size as usize,
            context: self.config.max_position_embeddings as usize,
            block_bytes: self.kv.block_bytes(),
        }
    }

    fn allocate(&mut self, blocks: u32) -> Result<(), Error> {
        self.kv.allocate(blocks)
    }

    fn forward(&mut self, runs: &[Run<'_>], logits: &mut Logits) -> Result<(), Error> {
        let hidden = self.hidden(runs)?;
        let mut wanted = Vec::new();
        let mut start = 0;
        for run in runs {
            wanted.extend(run.wanted().map(|row| start + row as i64));
            start += run.tokens.len() as i64;
        }
        let values = logits.resize(wanted.len(), self.config.vocab_size as usize);
        if wanted.is_empty() {
            return Ok(());
        }
        let rows = hidden.f_index_select(0, &Tensor::f_from_slice(&wanted)?.f_to_device(self.placement.device)?)?;
        let rows = self.head.forward(&self.norm.forward(&rows)?)?; // [R, V]
        let rows = rows.f_to_kind(Kind::Float)?.f_to_device(Device::Cpu)?;
        Ok(rows.f_copy_data(values, values.len())?)
    }
}

//! A GGUF file read as the checkpoint that it was converted from: config and tensors under their names there, rows in their order there.

use std::sync::Arc;

use serde_json::{Map, Value, json};
use tandem_common::artifacts::gguf::{Gguf, GgufError, TensorInfo};
use tch::Tensor;

use super::quant;
use crate::error::Error;

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
    ("sliding_window", "attention.sliding_window"),
];

const NUMBERS: &[(&str, &str)] =
    &[("rms_norm_eps", "attention.layer_norm_rms_epsilon"), ("rope_theta", "rope.freq_base")];

/// Names of tensors outside the layers.
const TENSORS: &[(&str, &str)] =
    &[("model.embed_tokens", "token_embd"), ("model.norm", "output_norm"), ("lm_head", "output")];

/// Names of tensors of a layer: `model.layers.N.` there, `blk.N.` here.
const LAYER_TENSORS: &[(&str, &str)] = &[
    ("input_layernorm", "attn_norm"),
    ("post_attention_layernorm", "ffn_norm"),
    ("self_attn.q_proj", "attn_q"),
    ("self_attn.k_proj", "attn_k"),
    ("self_attn.v_proj", "attn_v"),
    ("self_attn.o_proj", "attn_output"),
    ("mlp.gate_proj", "ffn_gate"),
    ("mlp.up_proj", "ffn_up"),
    ("mlp.down_proj", "ffn_down"),
];

/// Tensors whose rows the converter interleaves, by architecture, and the key of the number of heads in them.
const INTERLEAVED: &[(&str, &str, &str)] =
    &[("llama", "self_attn.q_proj", "attention.head_count"), ("llama", "self_attn.k_proj", "attention.head_count_kv")];

/// A GGUF file with a model in it.
#[derive(Debug)]
pub(super) struct GgufModel {
    gguf: Arc<Gguf>,
    architecture: String,
}

impl GgufModel {
    pub(super) fn new(gguf: Arc<Gguf>) -> Result<Self, GgufError> {
        let architecture = gguf.get::<&str>("general.architecture")?.to_owned();
        Ok(Self { gguf, architecture })
    }

    /// The header as `config.json` would say it. What the header leaves out is left out, or has the format's default.
    pub(super) fn config(&self) -> Result<Value, GgufError> {
        let mut config = Map::new();
        config.insert("model_type".into(), json!(self.architecture));
        for (setting, key) in SIZES {
            if let Some(value) = self.size(key)? {
                config.insert((*setting).into(), json!(value));
            }
        }
        for (setting, key) in NUMBERS {
            if let Some(value) = self.gguf.find::<f32>(&self.key(key))? {
                config.insert((*setting).into(), json!(f64::from(value)));
            }
        }
        self.fill_in(&mut config)?;
        Ok(Value::Object(config))
    }

    /// Settings that the header implies.
    fn fill_in(&self, config: &mut Map<String, Value>) -> Result<(), GgufError> {
        let heads = self.size("attention.head_count")?.unwrap_or(0);
        let head_size = self.size("embedding_length")?.unwrap_or(0).checked_div(heads).unwrap_or(0);
        let head_size = config.entry("head_dim").or_insert(json!(head_size)).clone();
        config.entry("num_key_value_heads").or_insert(json!(heads));
        config.entry("rope_theta").or_insert(json!(10_000.0));
        config.insert("tie_word_embeddings".into(), json!(self.gguf.tensor("output.weight").is_none()));
        if let Some(table) = self.gguf.tensor("token_embd.weight") {
            config.insert("vocab_size".into(), json!(table.dims.first()));
        }
        if let Some(turned) = self.size("rope.dimension_count")?
            && json!(turned) != head_size
        {
            config.insert("partial_rotary_factor".into(), json!(format!("{turned} of {head_size}")));
        }
        if let Some(kind) = self.rope_scaling()? {
            config.insert("rope_scaling".into(), json!({"rope_type": kind}));
        }
        Ok(())
    }

    fn rope_scaling(&self) -> Result<Option<&str>, GgufError> {
        if self.gguf.tensor("rope_freqs.weight").is_some() {
            return Ok(Some("llama3"));
        }
        let kind = self.gguf.find::<&str>(&self.key("rope.scaling.type"))?;
        Ok(kind.filter(|kind| *kind != "none"))
    }

    /// Reads a tensor of exactly this shape, in f32 on the CPU.
    pub(super) fn read(&self, name: &str, shape: &[i64]) -> Result<Tensor, Error> {
        let stored = stored_name(name);
        let missing = || Error::TensorMissing { name: stored.clone() };
        let info = self.gguf.tensor(&stored).ok_or_else(missing)?;
        let found: Vec<i64> = info.dims.iter().map(|&dim| dim as i64).collect();
        if found != shape {
            return Err(Error::TensorShape { name: stored, expected: shape.to_vec(), found });
        }
        let tensor = decode(&info)?.f_view(shape)?;
        match self.heads_to_order(name)? {
            Some(heads) => Ok(half_by_half(&tensor, heads)?),
            None => Ok(tensor),
        }
    }

    /// The number of heads in a tensor whose rows must be put back in order.
    fn heads_to_order(&self, name: &str) -> Result<Option<i64>, Error> {
        let interleaved = |(architecture, part, _): &&(&str, &str, &str)| {
            *architecture == self.architecture && name.contains(&format!(".{part}."))
        };
        let Some((_, _, key)) = INTERLEAVED.iter().find(interleaved) else { return Ok(None) };
        let heads = self.size(key).and_then(|heads| match heads {
            Some(heads) => Ok(heads),
            None => self.gguf.get(&self.key("attention.head_count")),
        });
        heads.map(|heads| Some(i64::from(heads))).map_err(super::header)
    }

    fn size(&self, key: &str) -> Result<Option<u32>, GgufError> {
        self.gguf.find(&self.key(key))
    }

    fn key(&self, key: &str) -> String {
        format!("{}.{key}", self.architecture)
    }
}

/// The name that GGUF gives a tensor. One that it has no name for keeps its own.
fn stored_name(name: &str) -> String {
    let (module, kind) = name.rsplit_once('.').unwrap_or((name, "weight"));
    let renamed = |names: &[(&'static str, &'static str)], module: &str| {
        names.iter().find(|(there, _)| *there == module).map(|(_, here)| *here)
    };
    let layer = module.strip_prefix("model.layers.").and_then(|rest| rest.split_once('.'));
    let stored = match layer {
        Some((number, part)) => renamed(LAYER_TENSORS, part).map(|part| format!("blk.{number}.{part}")),
        None => renamed(TENSORS, module).map(str::to_owned),
    };
    stored.map_or_else(|| name.to_owned(), |stored| format!("{stored}.{kind}"))
}

fn decode(info: &TensorInfo<'_>) -> Result<Tensor, Error> {
    let values = quant::dequantize(info.dtype, info.data)
        .ok_or_else(|| Error::TensorType { name: info.name.to_owned(), found: info.dtype.to_string() })?;
    Ok(Tensor::f_from_slice(&values)?)
}

/// Undoes the converter's interleaving: within each head it puts row i + D/2 next to row i, so that pairs that turn together are
/// neighbours. `[heads * D, in] -> [heads * D, in]`
fn half_by_half(tensor: &Tensor, heads: i64) -> Result<Tensor, Error> {
    let (rows, columns) = tensor.size2()?;
    let pairs = tensor.f_view([heads, rows / heads / 2, 2, columns])?;
    Ok(pairs.f_transpose(1, 2)?.f_reshape([rows, columns])?)
}

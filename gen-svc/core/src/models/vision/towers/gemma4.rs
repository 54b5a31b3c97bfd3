//! Gemma 4: patches in their own proportions, positions on two axes, norms around both branches.
//! Reference: transformers, `models/gemma4/modeling_gemma4.py`.

use super::super::family::{Configs, Family};
use super::super::tower::{
    Activation, Attention, Axis, Block, Head, HeadNorms, Linear, Mlp, Norm, NormKind, Patches, Pool, Positions, Rotary,
    Step, Tower,
};
use super::siglip::activation;
use crate::models::config::{ConfigError, unsupported};
use serde_json::json;

pub(super) const FAMILY: Family =
    Family { names: &["gemma4"], patches: "model.vision_tower.patch_embedder.input_proj.weight", describe, gguf: None };

const PATH: &str = "model.vision_tower";
const DEFAULT_THETA: f32 = 100.0;

/// The settings of all blocks.
struct Shared {
    hidden: usize,
    heads: usize,
    kv_heads: usize,
    head_size: usize,
    feed_forward: usize,
    epsilon: f64,
    activation: Activation,
    is_clipped: bool,
}

fn describe(configs: &Configs<'_>) -> Result<Tower, ConfigError> {
    let vision = &configs.vision;
    let size = |name, default| vision.size_or(name, default);
    let heads = size("num_attention_heads", 12)?;
    let kv_heads = size("num_key_value_heads", heads)?;
    if !heads.is_multiple_of(kv_heads) {
        return Err(unsupported("num_key_value_heads", kv_heads));
    }
    vision.require("attention_bias", &json!(false))?;
    let shared = Shared {
        hidden: size("hidden_size", 768)?,
        heads,
        kv_heads,
        head_size: size("head_dim", 64)?,
        feed_forward: size("intermediate_size", 3072)?,
        epsilon: f64::from(vision.float_or("rms_norm_eps", 1e-6)?),
        activation: hidden_activation(configs)?,
        is_clipped: vision.flag_or("use_clipped_linears", false)?,
    };
    let (hidden, side) = (shared.hidden, size("patch_size", 16)?);
    let columns = 3 * side * side;
    Ok(Tower {
        hidden,
        patches: Patches {
            side,
            matrix: Linear::new(format!("{PATH}.patch_embedder.input_proj"), hidden, columns),
            shape: vec![hidden, columns],
            frames: Vec::new(),
            scale: 2.0,
            offset: -1.0,
        },
        class_token: None,
        positions: Positions::Axes {
            name: format!("{PATH}.patch_embedder.position_embedding_table"),
            size: size("position_embedding_size", 10 * 1024)?,
        },
        input_norm: None,
        rotary: Some(rotary(configs, shared.head_size)?),
        blocks: (0..vision.size_up_to("num_hidden_layers", 1024, 16)?).map(|i| block(i, &shared)).collect(),
        window: None,
        final_norm: None,
        head: head(configs, &shared)?,
        deep: Vec::new(),
    })
}

fn hidden_activation(configs: &Configs<'_>) -> Result<Activation, ConfigError> {
    match configs.vision.find_text("hidden_activation")? {
        None => activation(configs, "gelu_pytorch_tanh"),
        Some("gelu_pytorch_tanh") => Ok(Activation::GeluTanh),
        Some(other) => Err(unsupported("hidden_activation", other)),
    }
}

/// The first half of a head rotates by the column, the second by the row.
fn rotary(configs: &Configs<'_>, head_size: usize) -> Result<Rotary, ConfigError> {
    if !head_size.is_multiple_of(4) {
        return Err(unsupported("head_dim", head_size));
    }
    let parameters = configs.vision.section("rope_parameters")?;
    let theta = parameters.map(|parameters| parameters.float_or("rope_theta", DEFAULT_THETA)).transpose()?;
    let theta = theta.unwrap_or(DEFAULT_THETA);
    let half = head_size / 2;
    let frequency = |j: usize| 1.0 / theta.powf((2 * j) as f32 / half as f32);
    let of_axis = |axis| (0..half / 2).map(move |j| (axis, frequency(j)));
    Ok(Rotary { parts: 2, pairs: of_axis(Axis::Column).chain(of_axis(Axis::Row)).collect() })
}

fn head(configs: &Configs<'_>, shared: &Shared) -> Result<Head, ConfigError> {
    let (vision, hidden) = (&configs.vision, shared.hidden);
    let name = |part| format!("{PATH}.{part}");
    let standardize = Step::Standardize { bias: name("std_bias"), scale: name("std_scale"), size: hidden };
    let norm = Norm { kind: NormKind::Rms { offset: 0.0 }, name: None, size: hidden, epsilon: shared.epsilon };
    let projection = Linear::new("model.embed_vision.embedding_projection", configs.model.size("hidden_size")?, hidden);
    let standardize = vision.flag_or("standardize", false)?.then_some(standardize);
    let steps = standardize.into_iter().chain([Step::Norm(norm), Step::Linear(projection)]).collect();
    let side = vision.size_or("pooling_kernel_size", 3)?;
    Ok(Head { pool: Pool::Mean { side, scale: (hidden as f64).sqrt() }, steps })
}

fn block(index: usize, shared: &Shared) -> Block {
    let Shared { hidden, heads, kv_heads, head_size, feed_forward, epsilon, activation, is_clipped } = *shared;
    let path = format!("{PATH}.encoder.layers.{index}");
    let linear = |name: &str, rows, columns| {
        let module = format!("{path}.{name}");
        let limits = is_clipped.then(|| module.clone());
        Linear { limits, ..Linear::new(format!("{module}.linear"), rows, columns) }
    };
    let norm = |name: &str| Norm::rms(format!("{path}.{name}"), hidden, epsilon);
    let of_head = |name: &str| Norm::rms(format!("{path}.self_attn.{name}"), head_size, epsilon);
    let width = heads * head_size;
    let projection = |part: &str, heads| linear(&format!("self_attn.{part}_proj"), heads * head_size, hidden);
    Block {
        before_attention: norm("input_layernorm"),
        attention: Attention {
            heads,
            kv_heads,
            head_size,
            scale: 1.0,
            qkv: vec![projection("q", heads), projection("k", kv_heads), projection("v", kv_heads)],
            norms: HeadNorms::PerHead([of_head("q_norm"), of_head("k_norm"), Norm { name: None, ..of_head("") }]),
            output: linear("self_attn.o_proj", hidden, width),
            in_window: false,
        },
        after_attention: Some(norm("post_attention_layernorm")),
        before_mlp: norm("pre_feedforward_layernorm"),
        mlp: Mlp {
            first: linear("mlp.gate_proj", feed_forward, hidden),
            up: Some(linear("mlp.up_proj", feed_forward, hidden)),
            activation,
            last: linear("mlp.down_proj", hidden, feed_forward),
        },
        after_mlp: Some(norm("post_feedforward_layernorm")),
        scales: None,
    }
}

//! Mistral 3's tower, Pixtral: pictures of any size, rotary positions on two axes. Reference:
//! transformers, `models/pixtral/modeling_pixtral.py` and `models/mistral3/modeling_mistral3.py`.

use super::super::family::{Configs, Family};
use super::super::tower::{
    Activation, Attention, Axis, Block, Head, HeadNorms, Linear, Mlp, Norm, Patches, Pool, Positions, Rotary, Step,
    Tower,
};
use super::siglip::activation;
use crate::models::config::{ConfigError, unsupported};
use serde_json::json;

pub(super) const FAMILY: Family =
    Family { names: &["mistral3"], patches: "vision_tower.patch_conv.weight", describe, gguf: None };

const PATH: &str = "vision_tower";
const PROJECTOR: &str = "multi_modal_projector";
const EPSILON: f64 = 1e-5;
const DEFAULT_THETA: f32 = 10_000.0;

fn describe(configs: &Configs<'_>) -> Result<Tower, ConfigError> {
    let vision = &configs.vision;
    let size = |name, default| vision.size_or(name, default);
    let (hidden, heads) = (size("hidden_size", 1024)?, size("num_attention_heads", 16)?);
    let (feed_forward, side) = (size("intermediate_size", 4096)?, size("patch_size", 16)?);
    if !hidden.is_multiple_of(4 * heads) {
        return Err(unsupported("num_attention_heads", heads));
    }
    vision.require("head_dim", &json!(hidden / heads))?;
    configs.model.require("vision_feature_layer", &json!(-1))?;
    let active = activation(configs, "gelu")?;
    let layers = size("num_hidden_layers", 24)?;
    if layers > 1024 {
        return Err(unsupported("num_hidden_layers", layers));
    }
    let theta = match vision.section("rope_parameters")? {
        Some(parameters) => parameters.float_or("rope_theta", DEFAULT_THETA)?,
        None => vision.float_or("rope_theta", DEFAULT_THETA)?,
    };
    Ok(Tower {
        hidden,
        patches: Patches {
            side,
            matrix: Linear::new(format!("{PATH}.patch_conv"), hidden, 3 * side * side),
            shape: vec![hidden, 3, side, side],
            frames: Vec::new(),
            scale: 1.0,
            offset: 0.0,
        },
        class_token: None,
        positions: Positions::None,
        input_norm: Some(Norm::rms(format!("{PATH}.ln_pre"), hidden, EPSILON)),
        rotary: Some(rotary(hidden / heads, theta)),
        blocks: (0..layers).map(|i| block(i, [hidden, heads, feed_forward], active)).collect(),
        window: None,
        final_norm: None,
        head: head(configs, hidden)?,
        deep: Vec::new(),
    })
}

/// Rows take the even frequencies, columns the odd ones.
fn rotary(head_size: usize, theta: f32) -> Rotary {
    let frequency = |j: usize| 1.0 / theta.powf((2 * j) as f32 / head_size as f32);
    let of_axis = |axis, first: usize| (first..head_size / 2).step_by(2).map(move |j| (axis, frequency(j)));
    Rotary { parts: 1, pairs: of_axis(Axis::Row, 0).chain(of_axis(Axis::Column, 1)).collect() }
}

fn head(configs: &Configs<'_>, hidden: usize) -> Result<Head, ConfigError> {
    let model = &configs.model;
    let (side, text) = (model.size_or("spatial_merge_size", 2)?, model.size("hidden_size")?);
    let bias = model.flag_or("multimodal_projector_bias", false)?;
    let epsilon = f64::from(model.float_or("rms_norm_eps", 1e-6)?);
    let active = match model.find_text("projector_hidden_act")?.unwrap_or("gelu") {
        "gelu" => Activation::Gelu,
        other => return Err(unsupported("projector_hidden_act", other)),
    };
    let linear = |name: &str, rows, columns| Linear::new(format!("{PROJECTOR}.{name}"), rows, columns);
    let steps = vec![
        Step::Norm(Norm::rms(format!("{PROJECTOR}.norm"), hidden, epsilon)),
        Step::Linear(linear("patch_merger.merging_layer", hidden, hidden * side * side)),
        Step::Linear(linear("linear_1", text, hidden).with_bias(bias)),
        Step::Activation(active),
        Step::Linear(linear("linear_2", text, text).with_bias(bias)),
    ];
    Ok(Head { pool: Pool::Unfold { side }, steps })
}

fn block(index: usize, [hidden, heads, feed_forward]: [usize; 3], activation: Activation) -> Block {
    let path = format!("{PATH}.transformer.layers.{index}");
    let linear = |name: &str, rows, columns| Linear::new(format!("{path}.{name}"), rows, columns);
    let head_size = hidden / heads;
    Block {
        before_attention: Norm::rms(format!("{path}.attention_norm"), hidden, EPSILON),
        attention: Attention {
            heads,
            kv_heads: heads,
            head_size,
            scale: (head_size as f64).powf(-0.5),
            qkv: ["q", "k", "v"].map(|part| linear(&format!("attention.{part}_proj"), hidden, hidden)).into(),
            norms: HeadNorms::None,
            output: linear("attention.o_proj", hidden, hidden),
            in_window: false,
        },
        after_attention: None,
        before_mlp: Norm::rms(format!("{path}.ffn_norm"), hidden, EPSILON),
        mlp: Mlp {
            first: linear("feed_forward.gate_proj", feed_forward, hidden),
            up: Some(linear("feed_forward.up_proj", feed_forward, hidden)),
            activation,
            last: linear("feed_forward.down_proj", hidden, feed_forward),
        },
        after_mlp: None,
        scales: None,
    }
}

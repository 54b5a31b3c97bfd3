//! InternVL: a class token, scaled branches, then a pixel shuffle. Reference: transformers,
//! `models/internvl/modeling_internvl.py`.

use super::super::family::{Configs, Family};
use super::super::tower::{
    Activation, Attention, Block, Head, HeadNorms, Linear, Mlp, Norm, Patches, Pool, Positions, Step, TableOrder, Tower,
};
use super::siglip::activation;
use crate::models::config::{Config, ConfigError, unsupported};
use serde_json::json;

pub(super) const FAMILY: Family = Family {
    names: &["internvl"],
    patches: "vision_tower.embeddings.patch_embeddings.projection.weight",
    describe,
    gguf: None,
};

const PATH: &str = "vision_tower";
const PROJECTOR: &str = "multi_modal_projector";
const PROJECTOR_EPSILON: f64 = 1e-5;
/// The epsilon of the norms of queries and keys, whatever the config says.
const HEAD_NORM_EPSILON: f64 = 1e-6;

/// The settings of all blocks.
struct Shared {
    hidden: usize,
    heads: usize,
    feed_forward: usize,
    epsilon: f64,
    activation: Activation,
    has_bias: bool,
    has_head_norms: bool,
    is_layer_norm: bool,
}

fn describe(configs: &Configs<'_>) -> Result<Tower, ConfigError> {
    let vision = &configs.vision;
    let size = |name, default| vision.size_or(name, default);
    vision.require("use_mask_token", &json!(false))?;
    configs.model.require("vision_feature_layer", &json!(-1))?;
    configs.model.require("vision_feature_select_strategy", &json!("default"))?;
    let shared = Shared {
        hidden: size("hidden_size", 1024)?,
        heads: size("num_attention_heads", 16)?,
        feed_forward: size("intermediate_size", 4096)?,
        epsilon: f64::from(vision.float_or("layer_norm_eps", 1e-6)?),
        activation: activation(configs, "gelu")?,
        has_bias: vision.flag_or("attention_bias", false)?,
        has_head_norms: vision.flag_or("use_qk_norm", false)?,
        is_layer_norm: is_layer_norm(vision)?,
    };
    if !shared.hidden.is_multiple_of(shared.heads) {
        return Err(unsupported("num_attention_heads", shared.heads));
    }
    let (hidden, patch) = (shared.hidden, side(vision, "patch_size", 14)?);
    let per_side = side(vision, "image_size", 448)? / patch;
    let layers = size("num_hidden_layers", 24)?;
    if layers > 1024 {
        return Err(unsupported("num_hidden_layers", layers));
    }
    let embeddings = |name: &str| format!("{PATH}.embeddings.{name}");
    Ok(Tower {
        hidden,
        patches: Patches {
            side: patch,
            matrix: Linear::new(embeddings("patch_embeddings.projection"), hidden, 3 * patch * patch).with_bias(true),
            shape: vec![hidden, 3, patch, patch],
            frames: Vec::new(),
            scale: 1.0,
            offset: 0.0,
        },
        class_token: Some(embeddings("cls_token")),
        positions: match vision.flag_or("use_absolute_position_embeddings", true)? {
            false => Positions::None,
            true => Positions::Table {
                name: embeddings("position_embeddings"),
                shape: vec![1, 1 + per_side * per_side, hidden],
                order: TableOrder::Index,
            },
        },
        input_norm: None,
        rotary: None,
        blocks: (0..layers).map(|i| block(i, &shared)).collect(),
        window: None,
        // With mean pooling, the model has no norm here.
        final_norm: match vision.flag_or("use_mean_pooling", true)? {
            true => None,
            false => Some(Norm::layer(format!("{PATH}.layernorm"), hidden, shared.epsilon)),
        },
        head: head(&configs.model, hidden)?,
        deep: Vec::new(),
    })
}

/// Returns a side that is given as a number or as a pair of equal numbers.
fn side(vision: &Config<'_>, name: &'static str, default: usize) -> Result<usize, ConfigError> {
    let Ok(Some(pair)) = vision.find_list(name) else { return vision.size_or(name, default) };
    match pair {
        [height, width] if height == width => {
            let side = height.as_u64().filter(|side| (1..=1 << 16).contains(side));
            side.map(|side| side as usize).ok_or_else(|| unsupported(name, height))
        }
        _ => Err(unsupported(name, serde_json::Value::from(pair.to_vec()))),
    }
}

fn is_layer_norm(vision: &Config<'_>) -> Result<bool, ConfigError> {
    match vision.find_text("norm_type")?.unwrap_or("layer_norm") {
        "layer_norm" => Ok(true),
        "rms_norm" => Ok(false),
        other => Err(unsupported("norm_type", other)),
    }
}

fn head(model: &Config<'_>, hidden: usize) -> Result<Head, ConfigError> {
    const RATIO: &str = "downsample_ratio";
    let ratio = model.float_or(RATIO, 0.5)?;
    let side = (1.0 / ratio).round() as usize;
    if side == 0 || 1.0 / side as f32 != ratio {
        return Err(unsupported(RATIO, ratio));
    }
    model.require("projector_hidden_act", &json!("gelu"))?;
    let (text, joined) = (model.size("hidden_size")?, hidden * side * side);
    let linear = |name: &str, columns| Linear::new(format!("{PROJECTOR}.{name}"), text, columns).with_bias(true);
    let steps = vec![
        Step::Norm(Norm::layer(format!("{PROJECTOR}.layer_norm"), joined, PROJECTOR_EPSILON)),
        Step::Linear(linear("linear_1", joined)),
        Step::Activation(Activation::Gelu),
        Step::Linear(linear("linear_2", text)),
    ];
    Ok(Head { pool: Pool::Shuffle { side }, steps })
}

fn block(index: usize, shared: &Shared) -> Block {
    let Shared { hidden, heads, feed_forward, epsilon, activation, has_bias, .. } = *shared;
    let path = format!("{PATH}.encoder.layer.{index}");
    let linear = |name: &str, rows, columns, bias| Linear::new(format!("{path}.{name}"), rows, columns).with_bias(bias);
    let rms = |name: &str, epsilon| Norm::rms(format!("{path}.{name}"), hidden, epsilon);
    let norm = |name: &str| match shared.is_layer_norm {
        true => Norm::layer(format!("{path}.{name}"), hidden, epsilon),
        false => rms(name, epsilon),
    };
    let head_size = hidden / heads;
    Block {
        before_attention: norm("layernorm_before"),
        attention: Attention {
            heads,
            kv_heads: heads,
            head_size,
            scale: (head_size as f64).powf(-0.5),
            qkv: ["q", "k", "v"].map(|part| linear(&format!("attention.{part}_proj"), hidden, hidden, has_bias)).into(),
            norms: match shared.has_head_norms {
                true => {
                    HeadNorms::Whole(["q", "k"].map(|part| rms(&format!("attention.{part}_norm"), HEAD_NORM_EPSILON)))
                }
                false => HeadNorms::None,
            },
            output: linear("attention.projection_layer", hidden, hidden, true),
            in_window: false,
        },
        after_attention: None,
        before_mlp: norm("layernorm_after"),
        mlp: Mlp {
            first: linear("mlp.fc1", feed_forward, hidden, true),
            up: None,
            activation,
            last: linear("mlp.fc2", hidden, feed_forward, true),
        },
        after_mlp: None,
        scales: Some(["lambda_1", "lambda_2"].map(|name| format!("{path}.{name}"))),
    }
}

//! Qwen3-VL: interpolated positions, rotary positions, and features for several text layers.
//! Reference: transformers, `models/qwen3_vl/modeling_qwen3_vl.py`.

use super::super::family::{Configs, Family};
use super::super::tower::{Activation, Block, Head, Linear, Mlp, Norm, Pool, Positions, Step, Tower};
use super::qwen2_5_vl::{Sizes, THETA, whole_numbers};
use super::siglip::activation;
use crate::models::config::{ConfigError, unsupported};

pub(super) const FAMILY: Family =
    Family { names: &["qwen3_vl"], patches: "model.visual.patch_embed.proj.weight", describe };

const PATH: &str = "model.visual";
const EPSILON: f64 = 1e-6;
const DEFAULTS: Sizes = Sizes {
    hidden: 1152,
    heads: 16,
    feed_forward: 4304,
    depth: 27,
    patch: 16,
    time: 2,
    merge: 2,
    out: 3584,
    theta: THETA,
};
const DEFAULT_POSITIONS: usize = 2304;

fn describe(configs: &Configs<'_>) -> Result<Tower, ConfigError> {
    let vision = &configs.vision;
    let sizes = Sizes::read(vision, DEFAULTS)?;
    let positions = vision.size_or("num_position_embeddings", Some(DEFAULT_POSITIONS))?;
    let side = positions.isqrt();
    if side * side != positions {
        return Err(unsupported("num_position_embeddings", positions));
    }
    let active = activation(configs, "gelu_pytorch_tanh")?;
    let deep = whole_numbers(vision, "deepstack_visual_indexes", &[8, 16, 24])?;
    if let Some(index) = deep.iter().find(|index| **index >= sizes.depth) {
        return Err(unsupported("deepstack_visual_indexes", index));
    }
    // The first feature is of the first of these blocks, in any order of the list.
    let mut deep: Vec<_> = deep.into_iter().enumerate().collect();
    deep.sort_by_key(|(_, at)| *at);
    Ok(Tower {
        hidden: sizes.hidden,
        patches: sizes.patches(PATH, true),
        class_token: None,
        positions: Positions::Interpolated { name: format!("{PATH}.pos_embed.weight"), side },
        input_norm: None,
        rotary: Some(sizes.rotary()),
        blocks: (0..sizes.depth).map(|i| block(i, &sizes, active)).collect(),
        window: None,
        final_norm: None,
        head: merger(&format!("{PATH}.merger"), &sizes, true),
        deep: deep
            .into_iter()
            .map(|(i, at)| (at, merger(&format!("{PATH}.deepstack_merger_list.{i}"), &sizes, false)))
            .collect(),
    })
}

/// `late`: the norm is of single patches, else of joined ones.
fn merger(path: &str, sizes: &Sizes, late: bool) -> Head {
    let count = sizes.merge * sizes.merge;
    let joined = sizes.hidden * count;
    let linear = |name: &str, rows| Linear::new(format!("{path}.{name}"), rows, joined).with_bias(true);
    let normed = if late { sizes.hidden } else { joined };
    let steps = vec![
        Step::Norm(Norm::layer(format!("{path}.norm"), normed, EPSILON)),
        Step::Linear(linear("linear_fc1", joined)),
        Step::Activation(Activation::Gelu),
        Step::Linear(linear("linear_fc2", sizes.out)),
    ];
    Head { pool: Pool::Join { count, late }, steps }
}

fn block(index: usize, sizes: &Sizes, activation: Activation) -> Block {
    let path = format!("{PATH}.blocks.{index}");
    let Sizes { hidden, feed_forward, .. } = *sizes;
    let linear = |name: &str, rows, columns| Linear::new(format!("{path}.mlp.{name}"), rows, columns).with_bias(true);
    Block {
        before_attention: Norm::layer(format!("{path}.norm1"), hidden, EPSILON),
        attention: sizes.attention(&path, false),
        after_attention: None,
        before_mlp: Norm::layer(format!("{path}.norm2"), hidden, EPSILON),
        mlp: Mlp {
            first: linear("linear_fc1", feed_forward, hidden),
            up: None,
            activation,
            last: linear("linear_fc2", hidden, feed_forward),
        },
        after_mlp: None,
        scales: None,
    }
}

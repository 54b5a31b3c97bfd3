//! Qwen2.5-VL: windows, rotary positions, gated MLPs. Reference: transformers,
//! `models/qwen2_5_vl/modeling_qwen2_5_vl.py`.

use super::super::family::{Configs, Family};
use super::super::tower::{
    Activation, Attention, Axis, Block, Head, HeadNorms, Linear, Mlp, Norm, Patches, Pool, Positions, Rotary, Step,
    Tower,
};
use super::siglip::activation;
use crate::models::config::{Config, ConfigError, unsupported};

pub(super) const FAMILY: Family =
    Family { names: &["qwen2_5_vl"], patches: "visual.patch_embed.proj.weight", describe };

const PATH: &str = "visual";
const EPSILON: f64 = 1e-6;
pub(super) const THETA: f32 = 10_000.0;

/// The settings that Qwen's towers share.
pub(super) struct Sizes {
    pub(super) hidden: usize,
    pub(super) heads: usize,
    pub(super) feed_forward: usize,
    pub(super) depth: usize,
    pub(super) patch: usize,
    pub(super) time: usize,
    pub(super) merge: usize,
    pub(super) out: usize,
    /// The base of the rotary positions.
    pub(super) theta: f32,
}

impl Sizes {
    pub(super) fn read(vision: &Config<'_>, defaults: Self) -> Result<Self, ConfigError> {
        let size = |name, default| vision.size_or(name, Some(default));
        let sizes = Self {
            hidden: size("hidden_size", defaults.hidden)?,
            heads: size("num_heads", defaults.heads)?,
            feed_forward: size("intermediate_size", defaults.feed_forward)?,
            depth: size("depth", defaults.depth)?,
            patch: size("patch_size", defaults.patch)?,
            time: size("temporal_patch_size", defaults.time)?,
            merge: size("spatial_merge_size", defaults.merge)?,
            out: size("out_hidden_size", defaults.out)?,
            theta: match vision.section("rope_parameters")? {
                Some(parameters) => parameters.float_or("rope_theta", defaults.theta)?,
                None => defaults.theta,
            },
        };
        if sizes.depth > 1024 {
            return Err(unsupported("depth", sizes.depth));
        }
        if !sizes.hidden.is_multiple_of(4 * sizes.heads) {
            return Err(unsupported("num_heads", sizes.heads));
        }
        Ok(sizes)
    }

    pub(super) fn head_size(&self) -> usize {
        self.hidden / self.heads
    }

    pub(super) fn patches(&self, path: &str, bias: bool) -> Patches {
        let Self { hidden, patch, time, .. } = *self;
        let matrix = Linear::new(format!("{path}.patch_embed.proj"), hidden, 3 * time * patch * patch).with_bias(bias);
        Patches { side: patch, matrix, shape: vec![hidden, 3, time, patch, patch], scale: 1.0, offset: 0.0 }
    }

    /// The first half of a head's pairs rotates by the row, the second by the column.
    pub(super) fn rotary(&self) -> Rotary {
        let half = self.head_size() / 2;
        let frequency = |j: usize| 1.0 / self.theta.powf((2 * j) as f32 / half as f32);
        let of_axis = |axis| (0..half / 2).map(move |j| (axis, frequency(j)));
        Rotary { parts: 1, pairs: of_axis(Axis::Row).chain(of_axis(Axis::Column)).collect() }
    }

    pub(super) fn attention(&self, path: &str, in_window: bool) -> Attention {
        let Self { hidden, heads, .. } = *self;
        Attention {
            heads,
            kv_heads: heads,
            head_size: self.head_size(),
            scale: (self.head_size() as f64).powf(-0.5),
            qkv: vec![Linear::new(format!("{path}.attn.qkv"), 3 * hidden, hidden).with_bias(true)],
            norms: HeadNorms::None,
            output: Linear::new(format!("{path}.attn.proj"), hidden, hidden).with_bias(true),
            in_window,
        }
    }
}

const DEFAULTS: Sizes = Sizes {
    hidden: 3584,
    heads: 16,
    feed_forward: 3420,
    depth: 32,
    patch: 14,
    time: 2,
    merge: 2,
    out: 3584,
    theta: THETA,
};

fn describe(configs: &Configs<'_>) -> Result<Tower, ConfigError> {
    let vision = &configs.vision;
    let sizes = Sizes::read(vision, DEFAULTS)?;
    let window = vision.size_or("window_size", Some(112))? / sizes.merge / sizes.patch;
    if window == 0 {
        return Err(unsupported("window_size", 0));
    }
    let full = whole_numbers(vision, "fullatt_block_indexes", &[7, 15, 23, 31])?;
    let active = activation(configs, "silu")?;
    let (hidden, joined) = (sizes.hidden, sizes.hidden * sizes.merge * sizes.merge);
    let merger = |name: &str, rows| Linear::new(format!("{PATH}.merger.{name}"), rows, joined).with_bias(true);
    let steps = vec![
        Step::Norm(Norm::rms(format!("{PATH}.merger.ln_q"), hidden, EPSILON)),
        Step::Linear(merger("mlp.0", joined)),
        Step::Activation(Activation::Gelu),
        Step::Linear(merger("mlp.2", sizes.out)),
    ];
    Ok(Tower {
        hidden,
        patches: sizes.patches(PATH, false),
        class_token: None,
        positions: Positions::None,
        input_norm: None,
        rotary: Some(sizes.rotary()),
        blocks: (0..sizes.depth).map(|i| block(i, &sizes, active, !full.contains(&i))).collect(),
        window: Some(window),
        final_norm: None,
        head: Head { pool: Pool::Join { count: sizes.merge * sizes.merge, late: true }, steps },
        deep: Vec::new(),
    })
}

/// Returns a list of whole numbers, or its default.
pub(super) fn whole_numbers(
    config: &Config<'_>,
    name: &'static str,
    default: &[usize],
) -> Result<Vec<usize>, ConfigError> {
    let Some(list) = config.find_list(name)? else { return Ok(default.to_vec()) };
    let number = |value: &serde_json::Value| value.as_u64().and_then(|number| usize::try_from(number).ok());
    list.iter().map(|value| number(value).ok_or_else(|| unsupported(name, value))).collect()
}

fn block(index: usize, sizes: &Sizes, activation: Activation, in_window: bool) -> Block {
    let path = format!("{PATH}.blocks.{index}");
    let Sizes { hidden, feed_forward, .. } = *sizes;
    let linear = |name: &str, rows, columns| Linear::new(format!("{path}.mlp.{name}"), rows, columns).with_bias(true);
    Block {
        before_attention: Norm::rms(format!("{path}.norm1"), hidden, EPSILON),
        attention: sizes.attention(&path, in_window),
        after_attention: None,
        before_mlp: Norm::rms(format!("{path}.norm2"), hidden, EPSILON),
        mlp: Mlp {
            first: linear("gate_proj", feed_forward, hidden),
            up: Some(linear("up_proj", feed_forward, hidden)),
            activation,
            last: linear("down_proj", hidden, feed_forward),
        },
        after_mlp: None,
        scales: None,
    }
}

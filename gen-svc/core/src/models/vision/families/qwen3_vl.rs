//! Qwen3-VL. Images are prepared as for Qwen2.5-VL. The tower has interpolated positions, rotary
//! positions, and features for several text layers. Reference: transformers, `models/qwen3_vl`.

use serde_json::json;

use super::super::family::{Configs, Family, Language};
use super::super::siglip::activation;
use super::super::tower::{Activation, Block, Head, Linear, Mlp, Norm, Pool, Positions, Step, Tower};
use super::qwen2_5_vl::{self, Sizes, whole_numbers};
use crate::error::LoadError;
use crate::models::architectures::qwen3_vl;
use crate::models::config::{ConfigError, unsupported};
use crate::weights::gguf::header::GgufHeader;
use crate::weights::gguf::projector::{GgufBlocks, GgufProjector, ProjectorConfig};

pub(super) const FAMILY: Family = Family {
    names: &["qwen3_vl"],
    processors: &["Qwen3VLProcessor"],
    image_processors: &["Qwen2VLImageProcessor"],
    recipe: qwen2_5_vl::recipe,
    language: Language::Own(qwen3_vl::TEXT.describe),
    is_tied: false,
    patches: "model.visual.patch_embed.proj.weight",
    tower,
    gguf: &[GGUF],
};

pub(super) const GGUF: GgufProjector = GgufProjector {
    name: "qwen3vl_merger",
    model_type: "qwen3_vl",
    language_models: &["qwen3_vl_text"],
    keys: &[DEEP_BLOCKS, qwen2_5_vl::MIN_PIXELS.1, qwen2_5_vl::MAX_PIXELS.1],
    integers: &[qwen2_5_vl::DEPTH, qwen2_5_vl::HEADS, qwen2_5_vl::OUT, qwen2_5_vl::MERGE],
    tensors: &[
        ("model.visual.patch_embed.proj", "v.patch_embd"),
        ("model.visual.patch_embed.proj.weight.1", "v.patch_embd.weight.1"),
        ("model.visual.pos_embed", "v.position_embd"),
        ("model.visual.merger.norm", "v.post_ln"),
        ("model.visual.merger.linear_fc1", "mm.0"),
        ("model.visual.merger.linear_fc2", "mm.2"),
    ],
    blocks: &[
        GgufBlocks {
            path: ("model.visual.blocks", "v.blk"),
            tensors: &[
                ("norm1", "ln1"),
                ("norm2", "ln2"),
                ("attn.qkv", "attn_qkv"),
                ("attn.q", "attn_q"),
                ("attn.k", "attn_k"),
                ("attn.v", "attn_v"),
                ("attn.proj", "attn_out"),
                ("mlp.linear_fc1", "ffn_up"),
                ("mlp.linear_fc2", "ffn_down"),
            ],
        },
        GgufBlocks {
            path: ("model.visual.deepstack_merger_list", "v.deepstack"),
            tensors: &[("norm", "norm"), ("linear_fc1", "fc1"), ("linear_fc2", "fc2")],
        },
    ],
    add_implied,
};

/// A flag for each block: whether a merger follows it.
pub(super) const DEEP_BLOCKS: &str = "vision.is_deepstack_layers";

/// The mergers after blocks have the numbers of their blocks.
fn add_implied(header: &GgufHeader, config: &mut ProjectorConfig) -> Result<(), LoadError> {
    config.vision.insert(DEEP.into(), json!(deep_blocks(header)?));
    config.vision.insert(NUMBERED_BY_BLOCK.into(), json!(true));
    add_shared(header, config)
}

/// Returns the blocks that a merger follows.
pub(super) fn deep_blocks(header: &GgufHeader) -> Result<Vec<usize>, LoadError> {
    let flags = header.find::<&[bool]>(DEEP_BLOCKS)?.unwrap_or_default();
    Ok((0..flags.len()).filter(|block| flags[*block]).collect())
}

/// Adds the settings that a tower without features for layers implies too.
pub(super) fn add_shared(header: &GgufHeader, config: &mut ProjectorConfig) -> Result<(), LoadError> {
    let size = |key| header.find::<u32>(key);
    if let (Some(side), Some(patch)) = (size("vision.image_size")?, size("vision.patch_size")?) {
        let patches = side.checked_div(patch).unwrap_or(0).saturating_pow(2);
        config.vision.insert(POSITIONS.into(), json!(patches));
    }
    qwen2_5_vl::add_shared(header, config)
}

const POSITIONS: &str = "num_position_embeddings";
const DEEP: &str = "deepstack_visual_indexes";
/// True if the mergers after blocks are numbered by their blocks, not consecutively.
const NUMBERED_BY_BLOCK: &str = "numbered_by_block";

const PATH: &str = "model.visual";
const EPSILON: f64 = 1e-6;
const DEFAULTS: Sizes = Sizes { hidden: 1152, feed_forward: 4304, depth: 27, patch: 16, ..qwen2_5_vl::DEFAULTS };
const DEFAULT_POSITIONS: usize = 2304;

fn tower(configs: &Configs<'_>) -> Result<Tower, ConfigError> {
    let (sizes, plain) = plain_tower(configs)?;
    let deep = whole_numbers(&configs.vision, DEEP, &[8, 16, 24])?;
    if let Some(index) = deep.iter().find(|index| **index >= sizes.depth) {
        return Err(unsupported(DEEP, index));
    }
    let by_block = configs.vision.flag_or(NUMBERED_BY_BLOCK, false)?;
    let numbered = deep.into_iter().enumerate();
    let mut deep: Vec<_> = numbered.map(|(i, block)| (block, if by_block { block } else { i })).collect();
    // The first feature is of the first of these blocks, in any order of the list.
    deep.sort_unstable();
    let deep = deep
        .into_iter()
        .map(|(block, i)| (block, merger(&format!("{PATH}.deepstack_merger_list.{i}"), &sizes, false)))
        .collect();
    Ok(Tower { deep, ..plain })
}

/// Describes the tower without features for layers. Returns its sizes too.
pub(super) fn plain_tower(configs: &Configs<'_>) -> Result<(Sizes, Tower), ConfigError> {
    let sizes = Sizes::read(configs, DEFAULTS)?;
    let positions = configs.vision.size_or(POSITIONS, DEFAULT_POSITIONS)?;
    let side = positions.isqrt();
    if side * side != positions {
        return Err(unsupported(POSITIONS, positions));
    }
    let active = activation(configs, "gelu_pytorch_tanh")?;
    let tower = Tower {
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
        deep: Vec::new(),
        own_row: None,
    };
    Ok((sizes, tower))
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

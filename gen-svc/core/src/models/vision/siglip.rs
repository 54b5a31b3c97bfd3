//! SigLIP's encoder, which several families use. CLIP's differs in what precedes its blocks. Reference: transformers,
//! `models/siglip/modeling_siglip.py`.

use super::family::Configs;
use super::tower::{
    Activation, Attention, Block, Head, HeadNorms, Linear, Mlp, Norm, Patches, Positions, TableOrder, Tower,
};
use crate::error::LoadError;
use crate::models::config::{ConfigError, GELU_TANH, unsupported};
use crate::weights::gguf::architecture::Name;
use crate::weights::gguf::header::GgufHeader;
use crate::weights::gguf::refused;

/// The differences between the families.
pub(super) struct Siglip {
    /// The path of the encoder's tensors.
    pub(super) path: &'static str,
    pub(super) order: TableOrder,
    pub(super) head: Head,
    /// The default epsilon of its norms, and the default activation.
    pub(super) epsilon: f32,
    pub(super) activation: &'static str,
}

/// SigLIP's own defaults.
pub(super) const EPSILON: f32 = 1e-6;
pub(super) const ACTIVATION: &str = "gelu_pytorch_tanh";

/// The sizes of the encoder.
#[derive(Debug, Clone, Copy)]
pub(super) struct Sizes {
    pub(super) hidden: usize,
    pub(super) heads: usize,
    pub(super) feed_forward: usize,
    pub(super) layers: usize,
    pub(super) image: usize,
    pub(super) patch: usize,
}

/// The modules of a block in `mmproj` files.
pub(super) const GGUF_BLOCK: &[Name] = &[
    ("layer_norm1", "ln1"),
    ("layer_norm2", "ln2"),
    ("self_attn.q_proj", "attn_q"),
    ("self_attn.k_proj", "attn_k"),
    ("self_attn.v_proj", "attn_v"),
    ("self_attn.out_proj", "attn_out"),
    ("mlp.fc1", "ffn_up"),
    ("mlp.fc2", "ffn_down"),
];

/// The key of the side of the squares of patches that become one row.
pub(super) const SCALE_FACTOR: &str = "vision.projector.scale_factor";

/// A tile in an `mmproj` file.
pub(super) struct GgufTile {
    /// The pixels of a side.
    pub(super) side: u32,
    /// The side of the squares of patches that become one row.
    pub(super) scale: u32,
    /// The rows that the language model takes.
    pub(super) rows: u32,
}

impl GgufTile {
    /// # Errors
    /// The patches do not fill the tile, or the squares do not.
    pub(super) fn read(header: &GgufHeader, default_scale: u32) -> Result<Self, LoadError> {
        let missing = |key| LoadError::Config(ConfigError::Missing { name: key });
        let size = |key| header.find::<u32>(key)?.ok_or_else(|| missing(key));
        let (side, patch) = (size(IMAGE_SIZE)?, size(PATCH_SIZE)?);
        let scale = header.find::<u32>(SCALE_FACTOR)?.unwrap_or(default_scale);
        match (side.checked_div(patch), scale) {
            (None | Some(0), _) => Err(refused(header, PATCH_SIZE, patch)),
            (Some(patches), 1..) if patches.is_multiple_of(scale) => {
                Ok(Self { side, scale, rows: (patches / scale).saturating_pow(2) })
            }
            _ => Err(refused(header, SCALE_FACTOR, scale)),
        }
    }
}

const IMAGE_SIZE: &str = "vision.image_size";
const PATCH_SIZE: &str = "vision.patch_size";

/// The largest number of blocks.
const MAX_BLOCKS: usize = 1024;

impl Sizes {
    pub(super) fn read(configs: &Configs<'_>, defaults: Self) -> Result<Self, ConfigError> {
        let size = |name, default| configs.vision.size_or(name, default);
        let sizes = Self {
            hidden: size("hidden_size", defaults.hidden)?,
            heads: size("num_attention_heads", defaults.heads)?,
            feed_forward: size("intermediate_size", defaults.feed_forward)?,
            layers: size("num_hidden_layers", defaults.layers)?,
            image: size("image_size", defaults.image)?,
            patch: size("patch_size", defaults.patch)?,
        };
        if sizes.layers > MAX_BLOCKS {
            return Err(unsupported("num_hidden_layers", sizes.layers));
        }
        if !sizes.hidden.is_multiple_of(sizes.heads) {
            return Err(unsupported("num_attention_heads", sizes.heads));
        }
        if sizes.patch > sizes.image {
            return Err(unsupported("patch_size", sizes.patch));
        }
        Ok(sizes)
    }

    /// Returns the patches in a row of a tile.
    pub(super) fn side(&self) -> usize {
        self.image / self.patch
    }
}

/// Returns the activation that a config names.
pub(super) fn activation(configs: &Configs<'_>, default: &'static str) -> Result<Activation, ConfigError> {
    match configs.vision.find_text("hidden_act")?.unwrap_or(default) {
        "silu" => Ok(Activation::Silu),
        "gelu" => Ok(Activation::Gelu),
        name if GELU_TANH.contains(&name) => Ok(Activation::GeluTanh),
        "quick_gelu" => Ok(Activation::QuickGelu),
        other => Err(unsupported("hidden_act", other)),
    }
}

pub(super) fn tower(configs: &Configs<'_>, sizes: Sizes, family: Siglip) -> Result<Tower, ConfigError> {
    let Siglip { path, order, head, epsilon, activation: active } = family;
    let Sizes { hidden, patch, .. } = sizes;
    let epsilon = f64::from(configs.vision.float_or("layer_norm_eps", epsilon)?);
    let active = activation(configs, active)?;
    let matrix = Linear::new(format!("{path}.embeddings.patch_embedding"), hidden, 3 * patch * patch).with_bias(true);
    Ok(Tower {
        hidden,
        patches: Patches {
            side: patch,
            matrix,
            shape: vec![hidden, 3, patch, patch],
            frames: Vec::new(),
            scale: 1.0,
            offset: 0.0,
        },
        class_token: None,
        positions: Positions::Table {
            name: format!("{path}.embeddings.position_embedding.weight"),
            shape: vec![sizes.side().pow(2), hidden],
            order,
        },
        input_norm: None,
        rotary: None,
        blocks: (0..sizes.layers)
            .map(|i| block(&format!("{path}.encoder.layers.{i}"), sizes, epsilon, active))
            .collect(),
        window: None,
        final_norm: Some(Norm::layer(format!("{path}.post_layernorm"), hidden, epsilon)),
        head,
        deep: Vec::new(),
        own_row: None,
    })
}

fn block(path: &str, sizes: Sizes, epsilon: f64, activation: Activation) -> Block {
    let Sizes { hidden, heads, feed_forward, .. } = sizes;
    let linear = |name: &str, rows, columns| Linear::new(format!("{path}.{name}"), rows, columns).with_bias(true);
    let norm = |name: &str| Norm::layer(format!("{path}.{name}"), hidden, epsilon);
    let head_size = hidden / heads;
    Block {
        before_attention: norm("layer_norm1"),
        attention: Attention {
            heads,
            kv_heads: heads,
            head_size,
            scale: (head_size as f64).powf(-0.5),
            qkv: ["q", "k", "v"].map(|part| linear(&format!("self_attn.{part}_proj"), hidden, hidden)).into(),
            norms: HeadNorms::None,
            output: linear("self_attn.out_proj", hidden, hidden),
            in_window: false,
        },
        after_attention: None,
        before_mlp: norm("layer_norm2"),
        mlp: Mlp {
            first: linear("mlp.fc1", feed_forward, hidden),
            up: None,
            activation,
            last: linear("mlp.fc2", hidden, feed_forward),
        },
        after_mlp: None,
        scales: None,
    }
}

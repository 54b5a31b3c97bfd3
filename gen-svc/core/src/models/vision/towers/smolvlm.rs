//! SmolVLM and Idefics 3: SigLIP with fractional positions, then a pixel shuffle. Reference:
//! transformers, `models/smolvlm/modeling_smolvlm.py`.

use serde_json::json;

use super::super::family::{Configs, Family};
use super::super::tower::{Head, Linear, Pool, Step, TableOrder, Tower};
use super::siglip::{self, GgufTile, Siglip, Sizes};
use crate::error::LoadError;
use crate::models::config::ConfigError;
use crate::weights::gguf::header::GgufHeader;
use crate::weights::gguf::projector::{GgufBlocks, GgufProjector, ProjectorConfig};

pub(super) const FAMILY: Family = Family {
    names: &["smolvlm", "idefics3"],
    patches: "model.vision_model.embeddings.patch_embedding.weight",
    describe,
    gguf: Some(GGUF),
};

const GGUF: GgufProjector = GgufProjector {
    name: "idefics3",
    model_type: "smolvlm",
    language_models: &["llama"],
    keys: &[siglip::SCALE_FACTOR, LONGEST_EDGE],
    integers: &[],
    tensors: &[
        ("model.vision_model.embeddings.patch_embedding", "v.patch_embd"),
        ("model.vision_model.embeddings.position_embedding", "v.position_embd"),
        ("model.vision_model.post_layernorm", "v.post_ln"),
        ("model.connector.modality_projection.proj", "mm.model.fc"),
    ],
    blocks: &[GgufBlocks { path: ("model.vision_model.encoder.layers", "v.blk"), tensors: siglip::GGUF_BLOCK }],
    add_implied,
};

/// The longest edge of an image before it is cut into tiles.
const LONGEST_EDGE: &str = "vision.preproc_image_size";

/// Tiles along the longest edge, in transformers' defaults and in all published models.
const DEFAULT_TILES: u32 = 4;

fn add_implied(header: &GgufHeader, config: &mut ProjectorConfig) -> Result<(), LoadError> {
    let GgufTile { side, scale, rows } = GgufTile::read(header, DEFAULT_SHUFFLE as u32)?;
    let longest = header.find::<u32>(LONGEST_EDGE)?.unwrap_or(side.saturating_mul(DEFAULT_TILES));
    config.model.insert("scale_factor".into(), json!(scale));
    config.image.insert("max_image_size".into(), json!({"longest_edge": side}));
    config.image.insert("size".into(), json!({"longest_edge": longest}));
    config.processor.insert("image_seq_len".into(), json!(rows));
    Ok(())
}

const DEFAULTS: Sizes = Sizes { hidden: 1152, heads: 16, feed_forward: 3072, layers: 12, image: 224, patch: 32 };
const DEFAULT_SHUFFLE: usize = 2;

fn describe(configs: &Configs<'_>) -> Result<Tower, ConfigError> {
    let sizes = Sizes::read(configs, DEFAULTS)?;
    let side = configs.model.size_or("scale_factor", DEFAULT_SHUFFLE)?;
    let text = configs.model.size("hidden_size")?;
    let projection = Linear::new("model.connector.modality_projection.proj", text, sizes.hidden * side * side);
    let head = Head { pool: Pool::Shuffle { side }, steps: vec![Step::Linear(projection)] };
    siglip::tower(configs, sizes, Siglip { path: "model.vision_model", order: TableOrder::Fraction, head })
}

//! Gemma 3: SigLIP, then the mean of squares of patches. Reference: transformers,
//! `models/gemma3/modeling_gemma3.py`.

use serde_json::json;

use super::super::family::{Configs, Family};
use super::super::tower::{Head, Linear, Norm, NormKind, Pool, Step, TableOrder, Tower};
use super::siglip::{self, GgufTile, Siglip, Sizes};
use crate::error::LoadError;
use crate::models::config::{ConfigError, unsupported};
use crate::weights::gguf::header::GgufHeader;
use crate::weights::gguf::projector::{GgufBlocks, GgufProjector, ProjectorConfig};

pub(super) const FAMILY: Family = Family {
    names: &["gemma3"],
    patches: "vision_tower.vision_model.embeddings.patch_embedding.weight",
    describe,
    gguf: Some(GGUF),
};

const GGUF: GgufProjector = GgufProjector {
    name: "gemma3",
    model_type: "gemma3",
    language_models: &["gemma3_text"],
    keys: &[siglip::SCALE_FACTOR],
    integers: &[],
    tensors: &[
        ("vision_tower.vision_model.embeddings.patch_embedding", "v.patch_embd"),
        ("vision_tower.vision_model.embeddings.position_embedding", "v.position_embd"),
        ("vision_tower.vision_model.post_layernorm", "v.post_ln"),
        ("multi_modal_projector.mm_soft_emb_norm", "mm.soft_emb_norm"),
        ("multi_modal_projector.mm_input_projection_weight", "mm.input_projection.weight"),
    ],
    blocks: &[GgufBlocks { path: ("vision_tower.vision_model.encoder.layers", "v.blk"), tensors: siglip::GGUF_BLOCK }],
    add_implied,
};

/// The default side of the squares of patches that become one row.
const DEFAULT_SCALE: u32 = 4;

/// The converter has added 1 to the weight of the projector's norm.
fn add_implied(header: &GgufHeader, config: &mut ProjectorConfig) -> Result<(), LoadError> {
    let GgufTile { side, rows, .. } = GgufTile::read(header, DEFAULT_SCALE)?;
    config.model.insert(TOKENS.into(), json!(rows));
    config.vision.insert(NORM_OFFSET.into(), json!(0));
    config.image.insert("size".into(), json!({"height": side, "width": side}));
    config.processor.insert("image_seq_length".into(), json!(rows));
    Ok(())
}

const TOKENS: &str = "mm_tokens_per_image";
/// The number that is added to the weight of the projector's norm.
const NORM_OFFSET: &str = "norm_offset";

const DEFAULTS: Sizes = Sizes { hidden: 768, heads: 12, feed_forward: 3072, layers: 12, image: 224, patch: 16 };
const DEFAULT_TOKENS: usize = 256;

fn describe(configs: &Configs<'_>) -> Result<Tower, ConfigError> {
    let sizes = Sizes::read(configs, DEFAULTS)?;
    let tokens = configs.model.size_or(TOKENS, DEFAULT_TOKENS)?;
    let side = sizes.side() / tokens.isqrt();
    if side * tokens.isqrt() != sizes.side() || tokens.isqrt().pow(2) != tokens {
        return Err(unsupported(TOKENS, tokens));
    }
    let epsilon = f64::from(configs.vision.float_or("layer_norm_eps", 1e-6)?);
    let offset = f64::from(configs.vision.find_float(NORM_OFFSET)?.unwrap_or(1.0));
    let norm = Norm {
        kind: NormKind::Rms { offset },
        ..Norm::rms("multi_modal_projector.mm_soft_emb_norm".to_owned(), sizes.hidden, epsilon)
    };
    let name = "multi_modal_projector.mm_input_projection_weight";
    let projection = Linear::new(name, configs.model.size("hidden_size")?, sizes.hidden);
    let projection = Linear { is_transposed: true, ..projection };
    let steps = vec![Step::Norm(norm), Step::Linear(projection)];
    let head = Head { pool: Pool::Mean { side, scale: 1.0 }, steps };
    siglip::tower(configs, sizes, Siglip { path: "vision_tower.vision_model", order: TableOrder::Index, head })
}

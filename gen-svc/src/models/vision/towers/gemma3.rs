//! Gemma 3: SigLIP, then the mean of squares of patches. Reference: transformers,
//! `models/gemma3/modeling_gemma3.py`.

use super::super::family::{Configs, Family};
use super::super::tower::{Head, Linear, Norm, NormKind, Pool, Step, TableOrder, Tower};
use super::siglip::{self, Siglip, Sizes};
use crate::models::config::{ConfigError, unsupported};

pub(super) const FAMILY: Family =
    Family { names: &["gemma3"], patches: "vision_tower.vision_model.embeddings.patch_embedding.weight", describe };

const DEFAULTS: Sizes = Sizes { hidden: 768, heads: 12, feed_forward: 3072, layers: 12, image: 224, patch: 16 };
const DEFAULT_TOKENS: usize = 256;

fn describe(configs: &Configs<'_>) -> Result<Tower, ConfigError> {
    const TOKENS: &str = "mm_tokens_per_image";
    let sizes = Sizes::read(configs, DEFAULTS)?;
    let tokens = configs.model.size_or(TOKENS, Some(DEFAULT_TOKENS))?;
    let side = sizes.side() / tokens.isqrt();
    if side * tokens.isqrt() != sizes.side() || tokens.isqrt().pow(2) != tokens {
        return Err(unsupported(TOKENS, tokens));
    }
    let epsilon = f64::from(configs.vision.float_or("layer_norm_eps", 1e-6)?);
    let norm = Norm {
        kind: NormKind::Rms { offset: 1.0 },
        ..Norm::rms("multi_modal_projector.mm_soft_emb_norm".to_owned(), sizes.hidden, epsilon)
    };
    let name = "multi_modal_projector.mm_input_projection_weight";
    let projection = Linear::new(name, configs.model.size("hidden_size")?, sizes.hidden);
    let projection = Linear { is_transposed: true, ..projection };
    let steps = vec![Step::Norm(norm), Step::Linear(projection)];
    let head = Head { pool: Pool::Mean { side, scale: 1.0 }, steps };
    siglip::tower(configs, sizes, Siglip { path: "vision_tower.vision_model", order: TableOrder::Index, head })
}

//! SmolVLM and Idefics 3: SigLIP with fractional positions, then a pixel shuffle. Reference:
//! transformers, `models/smolvlm/modeling_smolvlm.py`.

use super::super::family::{Configs, Family};
use super::super::tower::{Head, Linear, Pool, Step, TableOrder, Tower};
use super::siglip::{self, Siglip, Sizes};
use crate::models::config::ConfigError;

pub(super) const FAMILY: Family = Family {
    names: &["smolvlm", "idefics3"],
    patches: "model.vision_model.embeddings.patch_embedding.weight",
    describe,
};

const DEFAULTS: Sizes = Sizes { hidden: 1152, heads: 16, feed_forward: 3072, layers: 12, image: 224, patch: 32 };
const DEFAULT_SHUFFLE: usize = 2;

fn describe(configs: &Configs<'_>) -> Result<Tower, ConfigError> {
    let sizes = Sizes::read(configs, DEFAULTS)?;
    let side = configs.model.size_or("scale_factor", Some(DEFAULT_SHUFFLE))?;
    let text = configs.model.size("hidden_size")?;
    let projection = Linear::new("model.connector.modality_projection.proj", text, sizes.hidden * side * side);
    let head = Head { pool: Pool::Shuffle { side }, steps: vec![Step::Linear(projection)] };
    siglip::tower(configs, sizes, Siglip { path: "model.vision_model", order: TableOrder::Fraction, head })
}

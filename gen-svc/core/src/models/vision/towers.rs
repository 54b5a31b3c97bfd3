//! The supported towers: a file for each family, and a row in [`FAMILIES`].

use super::family::Family;
use crate::weights::ModelFile;
use crate::weights::gguf::projector::GgufProjector;

mod gemma3;
mod gemma4;
mod internvl;
mod pixtral;
mod qwen2_5_vl;
mod qwen3_vl;
mod siglip;
mod smolvlm;

const FAMILIES: &[Family] = &[
    smolvlm::FAMILY,
    gemma3::FAMILY,
    gemma4::FAMILY,
    qwen2_5_vl::FAMILY,
    qwen3_vl::FAMILY,
    pixtral::FAMILY,
    internvl::FAMILY,
];

/// Finds the family of a model. Returns None for a model of text only, and for a file without
/// the tower.
pub(super) fn find(file: &ModelFile) -> Option<&'static Family> {
    file.config().get("vision_config").filter(|vision| vision.is_object())?;
    let family = FAMILIES.iter().find(|family| family.names.contains(&file.architecture()))?;
    file.has(family.patches).then_some(family)
}

/// Returns how `mmproj` files store the towers of the supported families.
pub(super) fn projectors() -> impl Iterator<Item = &'static GgufProjector> {
    FAMILIES.iter().filter_map(|family| family.gguf.as_ref())
}

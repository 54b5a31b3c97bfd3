//! Qwen 3.5, also as a mixture of experts. Images and tower are those of Qwen3-VL, without features for several
//! text layers. Reference: transformers, `models/qwen3_5` and `models/qwen3_5_moe`.

use super::super::family::{Configs, Family, Language};
use super::super::tower::Tower;
use super::qwen3_vl;
use crate::error::LoadError;
use crate::models::architectures::{qwen3_5, qwen3_5_moe};
use crate::models::config::ConfigError;
use crate::weights::gguf;
use crate::weights::gguf::header::GgufHeader;
use crate::weights::gguf::projector::{GgufProjector, ProjectorConfig};

pub(super) const FAMILY: Family = Family {
    names: &["qwen3_5", "qwen3_5_moe"],
    language: Language::Implied(&[qwen3_5::TEXT, qwen3_5_moe::TEXT]),
    tower,
    gguf: &[GGUF, MIXTURE_GGUF],
    ..qwen3_vl::FAMILY
};

/// The tower of a dense model.
const GGUF: GgufProjector =
    GgufProjector { model_type: "qwen3_5", language_models: &["qwen3_5_text"], add_implied, ..qwen3_vl::GGUF };

/// The tower of a mixture of experts.
const MIXTURE_GGUF: GgufProjector =
    GgufProjector { model_type: "qwen3_5_moe", language_models: &["qwen3_5_moe_text"], ..GGUF };

/// The language model takes no features of blocks.
fn add_implied(header: &GgufHeader, config: &mut ProjectorConfig) -> Result<(), LoadError> {
    match qwen3_vl::deep_blocks(header)?.first() {
        Some(block) => Err(gguf::refused(header, qwen3_vl::DEEP_BLOCKS, format_args!("true for block {block}"))),
        None => qwen3_vl::add_shared(header, config),
    }
}

/// As in transformers, a list of blocks with features has no effect.
fn tower(configs: &Configs<'_>) -> Result<Tower, ConfigError> {
    qwen3_vl::plain_tower(configs).map(|(_, tower)| tower)
}

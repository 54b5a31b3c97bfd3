//! The row of a family of towers.

use super::tower::Tower;
use crate::models::config::{Config, ConfigError};
use crate::weights::gguf::projector::GgufProjector;

/// A family of models with the same tower.
pub(super) struct Family {
    /// The `model_type` in `config.json`.
    pub(super) names: &'static [&'static str],
    /// The tensor of the patch embedding. Files without it have the language model alone.
    pub(super) patches: &'static str,
    /// Describes the tower of a config.
    pub(super) describe: fn(&Configs<'_>) -> Result<Tower, ConfigError>,
    /// How `mmproj` files store the tower. `None`: they are not supported.
    pub(super) gguf: Option<GgufProjector>,
}

/// The sections of a config.
pub(super) struct Configs<'a> {
    /// `vision_config`.
    pub(super) vision: Config<'a>,
    /// The whole config, where settings of the text model have precedence.
    pub(super) model: Config<'a>,
}

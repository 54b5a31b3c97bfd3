//! Models of several modalities whose language model is one of several architectures.

use super::architecture::Architecture;
use super::config::{Config, ConfigError, unsupported};
use super::decoder::Decoder;

/// Describes the language model that `text_config` names, or the first of `supported` if it names
/// none.
pub(super) fn describe(config: &Config<'_>, supported: &[Architecture]) -> Result<Decoder, ConfigError> {
    let name = config.language_model();
    let found = supported.iter().find(|architecture| name.is_none_or(|name| name == architecture.name));
    let Some(found) = found else {
        return Err(unsupported("model_type of text_config", name.unwrap_or_default()));
    };
    (found.describe)(config)
}

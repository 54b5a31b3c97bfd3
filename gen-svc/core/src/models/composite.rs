//! Models of several modalities whose language model is one of several architectures.

use super::architecture::Architecture;
use super::config::{Config, ConfigError, unsupported};
use super::decoder::Decoder;
use crate::weights::ModelFile;

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

/// Model types whose output matrix is the embedding matrix, if the file has no other and the config
/// has no flag outside of `text_config`.
const TIED_BY_DEFAULT: [&str; 4] = ["gemma3", "gemma4", "internvl", "mistral3"];

/// Removes the output matrix of the decoder, if transformers uses the embeddings instead.
pub(super) fn tie(decoder: &mut Decoder, file: &ModelFile) {
    let is_default = file.config()["tie_word_embeddings"].is_null();
    if is_default && TIED_BY_DEFAULT.contains(&file.architecture()) && !file.has("lm_head.weight") {
        decoder.head = None;
    }
}

//! The row of a family of models with images.

use tandem_images::ProcessorError;
use tandem_images::recipe::{Recipe, Settings};

use super::tower::Tower;
use crate::models::architecture::{Architecture, PART};
use crate::models::config::{Config, ConfigError, unsupported};
use crate::models::decoder::Decoder;
use crate::weights::gguf::projector::GgufProjector;

/// A family of models whose images are prepared alike, with the same tower.
#[derive(Debug)]
pub struct Family {
    /// The `model_type` in `config.json`.
    pub names: &'static [&'static str],
    /// Class names of transformers for the whole processor.
    pub processors: &'static [&'static str],
    /// Class names of the image processor, without the suffix `Fast`.
    pub image_processors: &'static [&'static str],
    /// Reads the settings of the image preparation.
    pub(super) recipe: fn(&Settings) -> Result<Box<dyn Recipe>, ProcessorError>,
    /// The language model.
    pub(in crate::models) language: Language,
    /// True if the output matrix is the embedding matrix, if the config has no flag outside of `text_config`.
    pub(in crate::models) is_tied: bool,
    /// The tensor of the patch embedding. Files without it have the language model alone.
    pub(super) patches: &'static str,
    /// Describes the tower of a config.
    pub(super) tower: fn(&Configs<'_>) -> Result<Tower, ConfigError>,
    /// How `mmproj` files store the tower, for each name that they are read for. Empty: they are not supported.
    pub(super) gguf: &'static [GgufProjector],
}

/// The language model of a family.
#[derive(Debug, Clone, Copy)]
pub(in crate::models) enum Language {
    /// A model of this family only.
    Own(fn(&Config<'_>) -> Result<Decoder, ConfigError>),
    /// The model with the family's name and `_text`. As in transformers, another name in `text_config` has no effect.
    Implied(&'static [Architecture]),
    /// The model that `text_config` names, or the first if it names none.
    OneOf(&'static [Architecture]),
}

impl Language {
    /// Describes the language model of a config.
    pub(in crate::models) fn describe(self, config: &Config<'_>) -> Result<Decoder, ConfigError> {
        let found = match self {
            Self::Own(describe) => return describe(config),
            Self::Implied(supported) => {
                let whole = config.whole_model();
                let is_part = |name: &str| name.strip_suffix(PART) == Some(whole);
                let found = supported.iter().find(|architecture| is_part(architecture.name));
                found.ok_or_else(|| unsupported("model_type", whole))?
            }
            Self::OneOf(supported) => {
                let name = config.language_model();
                let found = supported.iter().find(|architecture| name.is_none_or(|name| name == architecture.name));
                found.ok_or_else(|| unsupported("model_type of text_config", name.unwrap_or_default()))?
            }
        };
        (found.describe)(config)
    }
}

impl Family {
    /// Returns the names of the language models, if the family shares them with models of text.
    pub fn shared_language_models(&self) -> impl Iterator<Item = &'static str> {
        let shared = match self.language {
            Language::Own(_) | Language::Implied(_) => &[],
            Language::OneOf(supported) => supported,
        };
        shared.iter().map(|architecture| architecture.name)
    }
}

/// The sections of a config.
pub(super) struct Configs<'a> {
    /// `vision_config`.
    pub(super) vision: Config<'a>,
    /// The whole config, where settings of the text model have precedence.
    pub(super) model: Config<'a>,
}

impl Configs<'_> {
    /// Returns the base of the tower's rotary positions. As in transformers, `rope_scaling` precedes `rope_parameters`,
    /// and the base of either precedes the base beside it.
    pub(super) fn theta(&self, default: f32) -> Result<f32, ConfigError> {
        let beside = self.vision.float_or("rope_theta", default)?;
        let section = |name| self.vision.section(name).map(|found| found.filter(|section| !section.is_empty()));
        let Some(section) = section("rope_scaling")?.or(section("rope_parameters")?) else { return Ok(beside) };
        for name in ["rope_type", "type"] {
            if let Some(other) = section.find_text(name)?.filter(|name| !["axial", "default"].contains(name)) {
                return Err(unsupported(name, other));
            }
        }
        section.float_or("rope_theta", beside)
    }
}

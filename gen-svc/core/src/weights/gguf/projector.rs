//! How `mmproj` files store the tower of one family, as data.

use tandem_images::Files;

use super::architecture::{ConfigMap, Name};
use super::header::GgufHeader;
use crate::error::LoadError;

/// How `mmproj` files store the tower of one family, besides the settings that all families share.
/// Keys are written without `clip.`. Sources: llama.cpp, `gguf/constants.py`,
/// `gguf/tensor_mapping.py` and `tools/mtmd/clip.cpp`.
#[derive(Debug, Clone, Copy)]
pub struct GgufProjector {
    /// The value of `clip.projector_type`.
    pub name: &'static str,
    /// The `model_type` of the whole model in transformers.
    pub model_type: &'static str,
    /// The names of the language models that take its rows.
    pub language_models: &'static [&'static str],
    /// Keys that other families may not have.
    pub keys: &'static [&'static str],
    /// Whole numbers: the setting of `vision_config`, and the key.
    pub integers: &'static [Name],
    /// Modules and whole tensors outside the blocks: in transformers, and in GGUF.
    pub tensors: &'static [Name],
    /// Numbered modules: the blocks first.
    pub blocks: &'static [GgufBlocks],
    /// Adds settings that the header implies.
    pub add_implied: fn(&GgufHeader, &mut ProjectorConfig) -> Result<(), LoadError>,
}

/// Numbered modules with the same parts.
#[derive(Debug, Clone, Copy)]
pub struct GgufBlocks {
    /// Their paths without the number: in transformers, and in GGUF.
    pub path: Name,
    /// The parts: below the path in transformers, and in GGUF.
    pub tensors: &'static [Name],
}

/// The settings that an `mmproj` file has, under their names in a folder of Hugging Face.
#[derive(Debug, Default)]
pub struct ProjectorConfig {
    /// `config.json`, without the language model and the tower.
    pub model: ConfigMap,
    /// The tower: `vision_config`.
    pub vision: ConfigMap,
    /// `preprocessor_config.json`.
    pub image: ConfigMap,
    /// `processor_config.json`.
    pub processor: ConfigMap,
}

impl ProjectorConfig {
    /// Returns the files that describe the model's processor.
    #[must_use]
    pub fn files(&self, projector: &GgufProjector) -> Files {
        Files {
            preprocessor: self.image.clone(),
            processor: self.processor.clone(),
            config: [("model_type".to_owned(), projector.model_type.into())].into_iter().collect(),
            ..Files::default()
        }
    }
}

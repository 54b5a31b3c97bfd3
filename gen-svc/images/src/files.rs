//! The files of a model that describe its processor.

use serde_json::{Map, Value};

use crate::settings::{Section, Settings};

const PREPROCESSOR: &str = "preprocessor_config.json";
const PROCESSOR: &str = "processor_config.json";
const TOKENIZER: &str = "tokenizer_config.json";
const CONFIG: &str = "config.json";

/// The files of a model that describe its processor, each a JSON object. An absent file is empty.
#[derive(Debug, Clone, Default)]
pub struct Files {
    /// `preprocessor_config.json`.
    pub preprocessor: Map<String, Value>,
    /// `processor_config.json`. Its `image_processor`, if any, replaces the file above.
    pub processor: Map<String, Value>,
    /// `tokenizer_config.json`, for names of special tokens.
    pub tokenizer: Map<String, Value>,
    /// `config.json`, for the model's type.
    pub config: Map<String, Value>,
    /// Values that replace those of the image processor, as arguments of a call do in transformers.
    pub overrides: Map<String, Value>,
}

impl Files {
    /// Reads the files by their names. `read` returns `None` for an absent file.
    pub fn read<E>(read: impl Fn(&str) -> Result<Option<Map<String, Value>>, E>) -> Result<Self, E> {
        let read = |file| Ok(read(file)?.unwrap_or_default());
        Ok(Self {
            preprocessor: read(PREPROCESSOR)?,
            processor: read(PROCESSOR)?,
            tokenizer: read(TOKENIZER)?,
            config: read(CONFIG)?,
            overrides: Map::new(),
        })
    }

    /// Returns the class name of the whole processor.
    #[must_use]
    pub fn processor_class(&self) -> Option<&str> {
        let sources = [&self.processor, &self.preprocessor, &self.tokenizer];
        sources.into_iter().find_map(|file| file.get("processor_class")?.as_str())
    }

    /// Returns the class name of the image processor.
    #[must_use]
    pub fn image_processor_type(&self) -> Option<&str> {
        self.image_settings().get("image_processor_type")?.as_str()
    }

    /// Returns the model's type.
    #[must_use]
    pub fn model_type(&self) -> Option<&str> {
        self.config.get("model_type")?.as_str()
    }

    fn image_settings(&self) -> &Map<String, Value> {
        let nested = self.processor.get("image_processor").and_then(Value::as_object);
        nested.unwrap_or(&self.preprocessor)
    }

    /// Returns the settings by their purpose.
    #[must_use]
    pub fn settings(&self) -> Settings {
        let mut image = self.image_settings().clone();
        image.extend(self.overrides.clone());
        Settings {
            image: Section(image),
            processor: Section(self.processor.clone()),
            tokens: Section(special_tokens(&self.tokenizer)),
            overrides: Section(self.overrides.clone()),
            model: Section(self.config.clone()),
        }
    }
}

/// Returns the texts of special tokens by name. A token is a text, or an object with its text.
fn special_tokens(tokenizer: &Map<String, Value>) -> Map<String, Value> {
    let nested = ["extra_special_tokens", "model_specific_special_tokens"];
    let nested = nested.iter().filter_map(|name| tokenizer.get(*name)?.as_object());
    let entries = nested.chain([tokenizer]).flatten().filter(|(name, _)| name.ends_with("_token"));
    let text = |value: &Value| value.get("content").unwrap_or(value).clone();
    entries.map(|(name, value)| (name.clone(), text(value))).collect()
}

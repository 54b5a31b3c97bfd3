//! The contents of artifacts.

use std::collections::HashSet;
use std::hash::Hash;
use std::path::PathBuf;
use std::sync::{Arc, OnceLock};

use crate::digest::hex_sha256;
use crate::excerpt::excerpt;
use crate::gguf::Gguf;
use crate::tokenizer::{FolderTokens, Tokenizer};

/// A model without its weights.
#[derive(Debug)]
pub struct Artifacts {
    /// The model's name: `org/repo` inside a Hugging Face cache, else the file's stem or the
    /// folder's name.
    pub name: String,
    /// The file or folder.
    pub path: PathBuf,
    /// `model_type` of config.json, or `general.architecture` of a GGUF.
    pub architecture: Option<String>,
    /// The model's limit of tokens, prompt and output together.
    pub context_length: Option<u32>,
    pub special_tokens: SpecialTokens,
    pub templates: Templates,
    /// The end-of-turn ids of `generation_config.json`, else of `config.json`, or of the GGUF's keys.
    pub generation_eos: Vec<u32>,
    /// The place of `generation_eos`.
    pub eos_origin: EosOrigin,
    /// The strings of `generation_config.json` that end the output.
    pub stop_strings: Vec<String>,
    /// `response_template` of `tokenizer_config.json`: how answers are read.
    pub response_template: Option<serde_json::Value>,
    /// The content of `config.json`. Null without the file, and for a GGUF, whose settings are in
    /// [`Artifacts::gguf`].
    pub config: serde_json::Value,
    pub(super) source: Source,
    pub(super) tokenizer: OnceLock<Tokenizer>,
}

/// The places that list end-of-turn ids.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EosOrigin {
    /// `generation_config.json`.
    GenerationConfig,
    /// `config.json`.
    Config,
    /// The keys of a GGUF.
    Gguf,
}

/// Special tokens, by their names in chat templates.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct SpecialTokens {
    /// Name and text: bos_token, eos_token, unk_token, sep_token, pad_token, cls_token, mask_token,
    /// then the model's own. Unset tokens are omitted, because transformers leaves them undefined
    /// in templates.
    pub named: Vec<(String, String)>,
    /// Special tokens without names. transformers calls them extra special tokens.
    pub additional: Vec<String>,
}

/// The source texts of a model's chat templates.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Templates {
    pub default: Option<String>,
    /// Templates with names, such as `tool_use` and `rag`, in the order of the file.
    pub named: Vec<(String, String)>,
}

/// The most templates of a model. Known models have up to four.
const MAX_TEMPLATES: usize = 64;
/// The most bytes of a template, ten times the largest known.
const MAX_TEMPLATE_BYTES: usize = 1 << 20;

/// Why the templates of a model are refused.
#[derive(Debug, thiserror::Error)]
pub enum TemplatesError {
    /// There are too many.
    #[error("the model has more than {MAX_TEMPLATES} chat templates")]
    Count,
    /// One is too long.
    #[error("chat template {:?} has {bytes} bytes, limit {MAX_TEMPLATE_BYTES}", excerpt(name))]
    Size { name: String, bytes: usize },
}

#[derive(Debug)]
pub(super) enum Source {
    Gguf(Arc<Gguf>),
    /// The tokens in the files beside `tokenizer.json`.
    Folder(FolderTokens),
}

impl SpecialTokens {
    /// Returns the text of a named token.
    pub fn get(&self, name: &str) -> Option<&str> {
        self.named.iter().find(|(known, _)| known == name).map(|(_, text)| text.as_str())
    }
}

impl Templates {
    /// Returns a template by name. The default template has the name `default`.
    pub fn get(&self, name: &str) -> Option<&str> {
        if name == "default" {
            return self.default.as_deref();
        }
        self.named.iter().find(|(known, _)| known == name).map(|(_, text)| text.as_str())
    }

    /// Returns all names, `default` first.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        let default = self.default.as_ref().map(|_| "default");
        default.into_iter().chain(self.named.iter().map(|(name, _)| name.as_str()))
    }

    /// Returns true if the model has no template.
    pub fn is_empty(&self) -> bool {
        self.default.is_none() && self.named.is_empty()
    }

    /// Returns the SHA-256 of a template's text in lower-case hex.
    pub fn sha256(&self, name: &str) -> Option<String> {
        self.get(name).map(|text| hex_sha256(text.as_bytes()))
    }

    /// Adds a template, or replaces the template of that name.
    ///
    /// # Errors
    /// The template is too long, or there are too many.
    pub(super) fn insert(&mut self, name: String, text: String) -> Result<(), TemplatesError> {
        if text.len() > MAX_TEMPLATE_BYTES {
            return Err(TemplatesError::Size { name, bytes: text.len() });
        }
        if name == "default" {
            self.default = Some(text);
        } else if let Some(slot) = self.named.iter_mut().find(|(known, _)| *known == name) {
            slot.1 = text;
        } else if self.named.len() < MAX_TEMPLATES {
            self.named.push((name, text));
        } else {
            return Err(TemplatesError::Count);
        }
        Ok(())
    }
}

/// Removes repeated values. Keeps the order.
pub(super) fn unique<T: Clone + Eq + Hash>(values: Vec<T>) -> Vec<T> {
    let mut seen = HashSet::new();
    values.into_iter().filter(|value| seen.insert(value.clone())).collect()
}

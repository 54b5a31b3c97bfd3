//! Model artifacts, which are everything but the weights: name, special tokens, chat templates,
//! generation defaults, tokenizer. They come from a Hugging Face folder or from the header of a
//! GGUF file, in the same form.

pub mod gguf;
mod hf;
mod map;
pub mod safetensors;

use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};

use crate::digest::hex_sha256;
use crate::tokenizer::{Tokenizer, TokenizerError};
use gguf::{Gguf, GgufError};

/// Why artifacts could not be read.
#[derive(Debug, thiserror::Error)]
pub enum ArtifactsError {
    /// The path is neither a folder nor a `.gguf` file.
    #[error("{} is neither a folder nor a .gguf file", path.display())]
    Kind { path: PathBuf },
    /// The folder contains none of the known model files.
    #[error("{} contains none of {}", path.display(), hf::FILES.join(", "))]
    Empty { path: PathBuf },
    /// A file could not be read.
    #[error("cannot read {}", path.display())]
    Read {
        path: PathBuf,
        #[source]
        source: std::io::Error,
    },
    /// A JSON file has invalid syntax.
    #[error("{} is not valid JSON", path.display())]
    Json {
        path: PathBuf,
        #[source]
        source: serde_json::Error,
    },
    /// A field of a JSON file has the wrong type.
    #[error("{}: {field} is not {expected}", path.display())]
    Field { path: PathBuf, field: String, expected: &'static str },
    /// The GGUF file could not be read.
    #[error("{}", path.display())]
    Gguf {
        path: PathBuf,
        #[source]
        source: GgufError,
    },
}

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
    pub generation: GenerationDefaults,
    /// The content of `config.json`. Null without the file, and for a GGUF, whose settings are in
    /// [`Artifacts::gguf`].
    pub config: serde_json::Value,
    source: Source,
    tokenizer: OnceLock<Tokenizer>,
}

/// Special tokens, by their names in chat templates.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct SpecialTokens {
    /// Name and text: bos_token, eos_token, unk_token, sep_token, pad_token, cls_token, mask_token,
    /// then the model's own. Unset tokens are omitted, because transformers leaves them undefined
    /// in templates.
    pub named: Vec<(String, String)>,
    /// Special tokens without names.
    pub additional: Vec<String>,
}

/// The source texts of a model's chat templates.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Templates {
    pub default: Option<String>,
    /// Templates with names, such as `tool_use` and `rag`, in the order of the file.
    pub named: Vec<(String, String)>,
}

/// The model's recommended generation settings.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct GenerationDefaults {
    /// The ids of all end-of-turn tokens.
    pub eos_token_ids: Vec<u32>,
    /// `false` means greedy sampling at any temperature.
    pub do_sample: Option<bool>,
    pub temperature: Option<f32>,
    pub top_k: Option<u32>,
    pub top_p: Option<f32>,
    pub min_p: Option<f32>,
    pub typical_p: Option<f32>,
    pub repetition_penalty: Option<f32>,
}

#[derive(Debug)]
enum Source {
    Gguf(Arc<Gguf>),
    Folder,
}

impl Artifacts {
    /// Reads the header of a `.gguf` file, or those of these files that a folder contains:
    /// `tokenizer_config.json`, `tokenizer.json`, `config.json`, `generation_config.json` and chat
    /// templates. The tokenizer is built on first use.
    pub fn load(path: &Path) -> Result<Self, ArtifactsError> {
        if path.is_dir() {
            hf::load(path)
        } else if path.extension().is_some_and(|extension| extension.eq_ignore_ascii_case("gguf")) {
            from_gguf(path).map_err(|source| ArtifactsError::Gguf { path: path.to_owned(), source })
        } else {
            Err(ArtifactsError::Kind { path: path.to_owned() })
        }
    }

    /// Returns the open file of a GGUF model.
    pub fn gguf(&self) -> Option<&Arc<Gguf>> {
        match &self.source {
            Source::Gguf(gguf) => Some(gguf),
            Source::Folder => None,
        }
    }

    /// Returns the model's tokenizer. The first call builds it.
    pub fn tokenizer(&self) -> Result<Tokenizer, TokenizerError> {
        if let Some(tokenizer) = self.tokenizer.get() {
            return Ok(tokenizer.clone());
        }
        let built = match &self.source {
            Source::Gguf(gguf) => Tokenizer::from_gguf(gguf)?,
            Source::Folder => self.folder_tokenizer()?,
        };
        Ok(self.tokenizer.get_or_init(|| built).clone())
    }

    fn folder_tokenizer(&self) -> Result<Tokenizer, TokenizerError> {
        let path = self.path.join(hf::TOKENIZER);
        let json =
            hf::read_file(&path, hf::MAX_TOKENIZER_BYTES).map_err(|source| TokenizerError::Read { path, source })?;
        let SpecialTokens { named, additional } = &self.special_tokens;
        let texts: Vec<&str> = named.iter().map(|(_, text)| text).chain(additional).map(String::as_str).collect();
        Tokenizer::from_json(&json, &texts)
    }

    /// Returns the ids of end-of-turn tokens: those of the generation defaults and the tokenizer's
    /// eos token.
    pub fn eos_token_ids(&self) -> Result<Vec<u32>, TokenizerError> {
        let mut ids = self.generation.eos_token_ids.clone();
        if let Some(text) = self.special_tokens.get("eos_token") {
            ids.extend(self.tokenizer()?.token_to_id(text));
        }
        Ok(unique(ids))
    }
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

    fn insert(&mut self, name: String, text: String) {
        if name == "default" {
            self.default = Some(text);
        } else if let Some(slot) = self.named.iter_mut().find(|(known, _)| *known == name) {
            slot.1 = text;
        } else {
            self.named.push((name, text));
        }
    }
}

/// Returns true if `path` is a model: a `.gguf` file, or a folder that contains a known model file.
#[must_use]
pub fn is_model(path: &Path) -> bool {
    if path.is_dir() {
        hf::FILES.iter().any(|file| path.join(file).exists())
    } else {
        path.is_file() && path.extension().is_some_and(|extension| extension.eq_ignore_ascii_case("gguf"))
    }
}

/// Removes repeated ids. Keeps the order.
fn unique(ids: Vec<u32>) -> Vec<u32> {
    let mut seen = std::collections::HashSet::new();
    ids.into_iter().filter(|&id| seen.insert(id)).collect()
}

fn from_gguf(path: &Path) -> Result<Artifacts, GgufError> {
    let gguf = Gguf::open(path)?;
    let architecture = gguf.find::<&str>("general.architecture")?.map(str::to_owned);
    let context_length = match &architecture {
        Some(name) => gguf.find(&format!("{name}.context_length"))?,
        None => None,
    };
    Ok(Artifacts {
        name: path.file_stem().unwrap_or_default().to_string_lossy().into_owned(),
        path: path.to_owned(),
        architecture,
        context_length,
        special_tokens: gguf_special_tokens(&gguf)?,
        templates: gguf_templates(&gguf)?,
        generation: gguf_generation(&gguf)?,
        config: serde_json::Value::Null,
        source: Source::Gguf(Arc::new(gguf)),
        tokenizer: OnceLock::new(),
    })
}

/// The names of special tokens in chat templates and in GGUF ("seperator" is the format's
/// spelling).
const GGUF_SPECIAL_TOKENS: &[(&str, &str)] = &[
    ("bos_token", "bos"),
    ("eos_token", "eos"),
    ("unk_token", "unknown"),
    ("sep_token", "seperator"),
    ("pad_token", "padding"),
    ("cls_token", "cls"),
    ("mask_token", "mask"),
];

fn gguf_special_tokens(gguf: &Gguf) -> Result<SpecialTokens, GgufError> {
    let tokens: &[String] = gguf.find("tokenizer.ggml.tokens")?.unwrap_or_default();
    let mut special = SpecialTokens::default();
    for (name, key) in GGUF_SPECIAL_TOKENS {
        let id: Option<u32> = gguf.find(&format!("tokenizer.ggml.{key}_token_id"))?;
        if let Some(text) = id.and_then(|id| tokens.get(id as usize)) {
            special.named.push(((*name).to_owned(), text.clone()));
        }
    }
    Ok(special)
}

fn gguf_templates(gguf: &Gguf) -> Result<Templates, GgufError> {
    const KEY: &str = "tokenizer.chat_template";
    let mut templates = Templates { default: gguf.find::<&str>(KEY)?.map(str::to_owned), named: Vec::new() };
    let mut keys: Vec<&str> = gguf.keys().collect();
    keys.sort_unstable();
    for key in keys {
        if let Some(name) = key.strip_prefix(KEY).and_then(|rest| rest.strip_prefix('.')) {
            templates.insert(name.to_owned(), gguf.get::<&str>(key)?.to_owned());
        }
    }
    Ok(templates)
}

fn gguf_generation(gguf: &Gguf) -> Result<GenerationDefaults, GgufError> {
    let mut eos = Vec::new();
    for name in ["eos", "eot", "eom"] {
        eos.extend(gguf.find::<u32>(&format!("tokenizer.ggml.{name}_token_id"))?);
    }
    Ok(GenerationDefaults {
        eos_token_ids: unique(eos),
        temperature: gguf.find("general.sampling.temp")?,
        top_k: gguf.find("general.sampling.top_k")?,
        top_p: gguf.find("general.sampling.top_p")?,
        min_p: gguf.find("general.sampling.min_p")?,
        repetition_penalty: gguf.find("general.sampling.penalty_repeat")?,
        ..GenerationDefaults::default()
    })
}

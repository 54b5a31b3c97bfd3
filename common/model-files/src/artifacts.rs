//! Model artifacts, which are everything but the weights: name, special tokens, chat templates,
//! sampling defaults, tokenizer. They come from a Hugging Face folder or from the header of a
//! GGUF file, in the same form.

mod contents;
mod error;
mod hf;
mod json;
mod locate;
mod mmproj;
mod names;
pub mod safetensors;
mod sampling;
mod tokens;

use std::io;
use std::path::Path;
use std::sync::{Arc, OnceLock};

use crate::gguf::{Gguf, GgufError};
use crate::tokenizer::{FolderTokens, Tokenizer, TokenizerError};
pub use contents::{Artifacts, EosOrigin, SpecialTokens, Templates, TemplatesError};
use contents::{Source, unique};
pub use error::ArtifactsError;
pub use json::read_object;
pub use locate::{absent, is_cached_repository, is_later_part, locate, model_name};
use locate::{has_model_file, is_gguf};
pub use mmproj::{is_mmproj, mmproj_beside, open_mmproj};
use names::TOKENIZER;
pub use sampling::SamplingDefaults;

impl Artifacts {
    /// Reads the header of a `.gguf` file, which may be any part of a model in parts, or those of these files that a folder contains:
    /// `tokenizer_config.json`, `special_tokens_map.json`, `added_tokens.json`, `tokenizer.json`,
    /// `config.json`, `generation_config.json` and chat templates. A folder without any of them is searched as [`locate`] does. The tokenizer is
    /// built on first use.
    pub fn load(path: &Path) -> Result<Self, ArtifactsError> {
        let path = &locate(path)?;
        if path.is_dir() {
            hf::load(path)
        } else if is_gguf(path) {
            from_gguf(path)
        } else if !path.exists() {
            Err(absent(path))
        } else if path.extension().is_some_and(|extension| extension.eq_ignore_ascii_case("safetensors")) {
            Err(ArtifactsError::Weights { path: path.to_owned() })
        } else {
            Err(ArtifactsError::Kind { path: path.to_owned() })
        }
    }

    /// Returns the open file of a GGUF model.
    pub fn gguf(&self) -> Option<&Arc<Gguf>> {
        match &self.source {
            Source::Gguf(gguf) => Some(gguf),
            Source::Folder(_) => None,
        }
    }

    /// Returns the model's tokenizer. The first call builds it.
    pub fn tokenizer(&self) -> Result<Tokenizer, TokenizerError> {
        if let Some(tokenizer) = self.tokenizer.get() {
            return Ok(tokenizer.clone());
        }
        let built = match &self.source {
            Source::Gguf(gguf) => Tokenizer::from_gguf(gguf)?,
            Source::Folder(tokens) => self.folder_tokenizer(tokens)?,
        };
        Ok(self.tokenizer.get_or_init(|| built).clone())
    }

    fn folder_tokenizer(&self, tokens: &FolderTokens) -> Result<Tokenizer, TokenizerError> {
        let path = self.path.join(TOKENIZER);
        let json = json::read_tokenizer(&path).map_err(|source| match source.kind() {
            io::ErrorKind::NotFound => TokenizerError::Absent { path },
            _ => TokenizerError::Read { path, source },
        })?;
        Tokenizer::from_folder(&json, tokens)
    }

    /// Returns the ids of end-of-turn tokens: those of the generation config and the tokenizer's
    /// eos token.
    pub fn eos_token_ids(&self) -> Result<Vec<u32>, TokenizerError> {
        let mut ids = self.generation_eos.clone();
        if let Some(text) = self.special_tokens.get("eos_token") {
            ids.extend(self.tokenizer()?.token_to_id(text));
        }
        Ok(unique(ids))
    }
}

/// Returns true if `path` is a model: a `.gguf` file, or a folder that contains a known model file.
#[must_use]
pub fn is_model(path: &Path) -> bool {
    if path.is_dir() { has_model_file(path) } else { path.is_file() && is_gguf(path) }
}

fn from_gguf(path: &Path) -> Result<Artifacts, ArtifactsError> {
    let failed = |source| ArtifactsError::Gguf { path: path.to_owned(), source };
    let gguf = Gguf::open_all(path).map_err(failed)?;
    let Described { architecture, context_length, special_tokens, generation_eos } =
        Described::read(&gguf).map_err(failed)?;
    let mut templates = Templates::default();
    for (name, text) in gguf_templates(&gguf).map_err(failed)? {
        let refused = |source| ArtifactsError::Templates { path: path.to_owned(), source };
        templates.insert(name.to_owned(), text.to_owned()).map_err(refused)?;
    }
    Ok(Artifacts {
        name: model_name(path),
        path: path.to_owned(),
        architecture,
        context_length,
        special_tokens,
        templates,
        generation_eos,
        eos_origin: EosOrigin::Gguf,
        stop_strings: Vec::new(),
        response_template: None,
        config: serde_json::Value::Null,
        source: Source::Gguf(Arc::new(gguf)),
        tokenizer: OnceLock::new(),
    })
}

/// The facts of a GGUF header, except for templates.
struct Described {
    architecture: Option<String>,
    context_length: Option<u32>,
    special_tokens: SpecialTokens,
    generation_eos: Vec<u32>,
}

impl Described {
    fn read(gguf: &Gguf) -> Result<Self, GgufError> {
        let architecture = gguf.find::<&str>("general.architecture")?.map(str::to_owned);
        let context_length = match &architecture {
            Some(name) => gguf.find(&format!("{name}.context_length"))?,
            None => None,
        };
        let (special_tokens, generation_eos) = (gguf_special_tokens(gguf)?, gguf_eos(gguf)?);
        Ok(Self { architecture, context_length, special_tokens, generation_eos })
    }
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

/// Returns names and texts, sorted by name.
fn gguf_templates(gguf: &Gguf) -> Result<Vec<(&str, &str)>, GgufError> {
    const KEY: &str = "tokenizer.chat_template";
    let default = gguf.find::<&str>(KEY)?.map(|text| Ok(("default", text)));
    let mut keys: Vec<&str> = gguf.keys().collect();
    keys.sort_unstable();
    let named = keys.into_iter().filter_map(|key| Some((key, key.strip_prefix(KEY)?.strip_prefix('.')?)));
    default.into_iter().chain(named.map(|(key, name)| Ok((name, gguf.get::<&str>(key)?)))).collect()
}

/// Returns the ids of end-of-turn tokens.
fn gguf_eos(gguf: &Gguf) -> Result<Vec<u32>, GgufError> {
    let mut eos = Vec::new();
    for name in ["eos", "eot", "eom"] {
        eos.extend(gguf.find::<u32>(&format!("tokenizer.ggml.{name}_token_id"))?);
    }
    Ok(unique(eos))
}

//! Hugging Face folders, read as transformers reads them. Each file is optional, but one must
//! exist.

use std::fs;
use std::path::Path;
use std::sync::OnceLock;

use serde_json::Value;

use super::contents::{Artifacts, EosOrigin, Source, SpecialTokens, Templates, unique};
use super::error::ArtifactsError;
use super::json::{Object, read_object, read_text};
use super::locate::model_name;
use super::names::{
    CONFIG, GENERATION_CONFIG, MORE_TEMPLATES, PREPROCESSOR, PROCESSOR, PROCESSOR_TEMPLATE, TEMPLATE, TOKENIZER_CONFIG,
};
use super::tokens;

pub(super) fn load(folder: &Path) -> Result<Artifacts, ArtifactsError> {
    let tokenizer_config = read_object(&folder.join(TOKENIZER_CONFIG))?.unwrap_or_default();
    let config = read_object(&folder.join(CONFIG))?;
    let settings = Settings { config: config.as_ref() };
    let tokens = tokens::read(folder, &tokenizer_config)?;
    let generation = read_object(&folder.join(GENERATION_CONFIG))?.unwrap_or_default();
    let (generation_eos, eos_origin) = generation_eos(&generation, &settings);
    Ok(Artifacts {
        name: model_name(folder),
        path: folder.to_owned(),
        architecture: config.as_ref().and_then(|config| string(config.get("model_type"))),
        context_length: context_length(&settings, &tokenizer_config),
        special_tokens: SpecialTokens::of(&tokens),
        templates: templates(folder, &tokenizer_config)?,
        generation_eos,
        eos_origin,
        stop_strings: stop_strings(&generation),
        response_template: tokenizer_config.get("response_template").filter(|rules| !rules.is_null()).cloned(),
        config: config.map_or(Value::Null, Value::Object),
        source: Source::Folder(tokens),
        tokenizer: OnceLock::new(),
    })
}

/// The settings of the language model in `config.json`.
struct Settings<'a> {
    config: Option<&'a Object>,
}

impl<'a> Settings<'a> {
    /// Returns a setting. `text_config`, the language model's settings in a multimodal model,
    /// precedes the rest of the config.
    fn get(&self, key: &str) -> Option<&'a Value> {
        let config = self.config?;
        config.get("text_config").and_then(|text| text.get(key)).or_else(|| config.get(key))
    }
}

fn context_length(config: &Settings<'_>, tokenizer_config: &Object) -> Option<u32> {
    const KEYS: &[&str] =
        &["max_position_embeddings", "n_positions", "max_sequence_length", "max_seq_len", "seq_length", "n_ctx"];
    let from_config = KEYS.iter().find_map(|key| unsigned(config.get(key)));
    // transformers writes an unknown length as a number beyond any integer type, which `unsigned`
    // ignores.
    from_config.or_else(|| unsigned(tokenizer_config.get("model_max_length")))
}

/// Reads the chat templates. Those of a processor precede the tokenizer's if the folder has a
/// processor, as `AutoProcessor` reads them. Without one, `AutoTokenizer` reads the tokenizer's.
/// Named templates remain in addition to both.
fn templates(folder: &Path, tokenizer_config: &Object) -> Result<Templates, ArtifactsError> {
    let (mut templates, own) = (tokenizer_templates(folder, tokenizer_config)?, processor_templates(folder)?);
    let has_processor = [PROCESSOR, PREPROCESSOR].iter().any(|file| folder.join(file).exists());
    if !templates.is_empty() && !has_processor {
        return Ok(templates);
    }
    let Templates { default, named } = own;
    for (name, text) in default.map(|text| ("default".to_owned(), text)).into_iter().chain(named) {
        let path = folder.to_owned();
        templates.insert(name, text).map_err(|source| ArtifactsError::Templates { path, source })?;
    }
    Ok(templates)
}

/// Reads the templates of `processor_config.json`. Without any, reads that of `chat_template.json`.
fn processor_templates(folder: &Path) -> Result<Templates, ArtifactsError> {
    for file in [PROCESSOR, PROCESSOR_TEMPLATE] {
        let path = folder.join(file);
        let processor = read_object(&path)?.unwrap_or_default();
        let templates = config_templates(processor.get("chat_template"), &path)?;
        if !templates.is_empty() {
            return Ok(templates);
        }
    }
    Ok(Templates::default())
}

/// Reads the chat templates from template files. Without any, reads them from
/// `tokenizer_config.json`.
fn tokenizer_templates(folder: &Path, tokenizer_config: &Object) -> Result<Templates, ArtifactsError> {
    let mut templates = Templates { default: read_text(&folder.join(TEMPLATE))?, named: Vec::new() };
    for name in template_names(folder)? {
        let path = folder.join(MORE_TEMPLATES).join(format!("{name}.jinja"));
        if let Some(text) = read_text(&path)? {
            templates.insert(name, text).map_err(|source| ArtifactsError::Templates { path, source })?;
        }
    }
    if templates.is_empty() {
        templates = config_templates(tokenizer_config.get("chat_template"), &folder.join(TOKENIZER_CONFIG))?;
    }
    Ok(templates)
}

/// Returns the names in the folder of additional templates, sorted.
fn template_names(folder: &Path) -> Result<Vec<String>, ArtifactsError> {
    let path = folder.join(MORE_TEMPLATES);
    if !path.is_dir() {
        return Ok(Vec::new());
    }
    let unreadable = |source| ArtifactsError::Read { path: path.clone(), source };
    let mut names = Vec::new();
    for entry in fs::read_dir(&path).map_err(unreadable)? {
        let file = entry.map_err(unreadable)?.file_name();
        names.extend(file.to_string_lossy().strip_suffix(".jinja").map(str::to_owned));
    }
    names.sort_unstable();
    Ok(names)
}

/// Reads one template, a list of `{name, template}`, or an object of templates by name.
fn config_templates(value: Option<&Value>, path: &Path) -> Result<Templates, ArtifactsError> {
    let wrong =
        |field: &str, expected| ArtifactsError::Field { path: path.to_owned(), field: field.to_owned(), expected };
    let mut templates = Templates::default();
    let mut insert = |name: String, text: String| {
        templates.insert(name, text).map_err(|source| ArtifactsError::Templates { path: path.to_owned(), source })
    };
    match value {
        None | Some(Value::Null) => {}
        Some(Value::String(text)) => insert("default".to_owned(), text.clone())?,
        Some(Value::Array(list)) => {
            for entry in list {
                let (name, text) = (string(entry.get("name")), string(entry.get("template")));
                let both =
                    name.zip(text).ok_or_else(|| wrong("chat_template[]", "an object with a name and a template"))?;
                insert(both.0, both.1)?;
            }
        }
        Some(Value::Object(by_name)) => {
            for (name, text) in by_name {
                let text = string(Some(text)).ok_or_else(|| wrong(&format!("chat_template.{name}"), "a string"))?;
                insert(name.clone(), text)?;
            }
        }
        Some(_) => return Err(wrong("chat_template", "a string, a list or an object")),
    }
    Ok(templates)
}

/// Reads the eos ids of `generation_config.json`. Without any, they are read from `config.json`, as
/// in transformers.
fn generation_eos(generation: &Object, config: &Settings<'_>) -> (Vec<u32>, EosOrigin) {
    match generation.get("eos_token_id").filter(|ids| !ids.is_null()) {
        Some(eos) => (unique(ids(Some(eos))), EosOrigin::GenerationConfig),
        None => (unique(ids(config.get("eos_token_id"))), EosOrigin::Config),
    }
}

/// The most stop strings of a model, and the most bytes of each. A request to the generation service
/// may have 64, with those of its adapter.
const MAX_STOP_STRINGS: usize = 32;
const MAX_STOP_BYTES: usize = 1024;

/// Reads one stop string or a list of them. Empty and longer ones, and values of other types, are left
/// out.
fn stop_strings(generation: &Object) -> Vec<String> {
    let listed = match generation.get("stop_strings") {
        Some(Value::Array(list)) => list.as_slice(),
        Some(one) => std::slice::from_ref(one),
        None => &[],
    };
    let is_usable = |text: &&str| !text.is_empty() && text.len() <= MAX_STOP_BYTES;
    let texts = listed.iter().filter_map(Value::as_str).filter(is_usable).map(str::to_owned);
    unique(texts.collect()).into_iter().take(MAX_STOP_STRINGS).collect()
}

/// Reads one id or a list of ids.
fn ids(value: Option<&Value>) -> Vec<u32> {
    match value {
        Some(Value::Array(list)) => list.iter().filter_map(|id| unsigned(Some(id))).collect(),
        one => unsigned(one).into_iter().collect(),
    }
}

fn string(value: Option<&Value>) -> Option<String> {
    value?.as_str().map(str::to_owned)
}

fn unsigned(value: Option<&Value>) -> Option<u32> {
    value?.as_u64()?.try_into().ok()
}

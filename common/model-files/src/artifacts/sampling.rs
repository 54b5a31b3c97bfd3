//! The sampling defaults of a model: the values of `generation_config.json`, or the keys
//! `general.sampling.*` that llama.cpp writes into a GGUF file.

use std::path::{Path, PathBuf};

use serde_json::Value;

use super::contents::{Artifacts, Source};
use super::error::ArtifactsError;
use super::json::{Object, read_object};
use super::names::GENERATION_CONFIG;
use crate::gguf::{Gguf, GgufError};

/// The sampling values that a model's files recommend.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct SamplingDefaults {
    /// The file that has the values. None if no file has any.
    pub file: Option<PathBuf>,
    /// `false` means greedy sampling at any temperature.
    pub do_sample: Option<bool>,
    pub temperature: Option<f32>,
    pub top_k: Option<u32>,
    pub top_p: Option<f32>,
    pub min_p: Option<f32>,
    pub typical_p: Option<f32>,
    pub repetition_penalty: Option<f32>,
    /// Names of settings that change a text in transformers, and have no effect here.
    pub without_effect: Vec<&'static str>,
}

/// Settings of `generation_config.json` that change a text in transformers, and have no effect here.
const WITHOUT_EFFECT: &[&str] = &[
    "bad_words_ids",
    "begin_suppress_tokens",
    "diversity_penalty",
    "encoder_no_repeat_ngram_size",
    "encoder_repetition_penalty",
    "epsilon_cutoff",
    "eta_cutoff",
    "exponential_decay_length_penalty",
    "forced_bos_token_id",
    "forced_eos_token_id",
    "guidance_scale",
    "no_repeat_ngram_size",
    "num_beams",
    "penalty_alpha",
    "sequence_bias",
    "suppress_tokens",
    "watermarking_config",
];

impl Artifacts {
    /// Reads the sampling defaults from the first of these that exists: `generation_config.json` in the model's folder; `NAME.generation_config.json` beside
    /// `NAME.gguf` or its parts; the GGUF file's own keys. Ranges are not checked.
    ///
    /// # Errors
    /// The file cannot be read, or a value has the wrong type.
    pub fn sampling_defaults(&self) -> Result<SamplingDefaults, ArtifactsError> {
        let beside = match &self.source {
            Source::Folder(_) => self.path.join(GENERATION_CONFIG),
            Source::Gguf(_) => self.path.with_file_name(format!("{}.{GENERATION_CONFIG}", self.name)),
        };
        match (&self.source, beside.exists()) {
            (_, true) => from_json(&beside),
            (Source::Folder(_), false) => Ok(SamplingDefaults::default()),
            (Source::Gguf(gguf), false) => {
                from_gguf(&self.path, gguf).map_err(|source| ArtifactsError::Gguf { path: self.path.clone(), source })
            }
        }
    }
}

fn from_gguf(path: &Path, gguf: &Gguf) -> Result<SamplingDefaults, GgufError> {
    let read = SamplingDefaults {
        temperature: gguf.find("general.sampling.temp")?,
        top_k: gguf.find("general.sampling.top_k")?,
        top_p: gguf.find("general.sampling.top_p")?,
        min_p: gguf.find("general.sampling.min_p")?,
        repetition_penalty: gguf.find("general.sampling.penalty_repeat")?,
        ..SamplingDefaults::default()
    };
    let is_empty = read == SamplingDefaults::default();
    Ok(SamplingDefaults { file: (!is_empty).then(|| path.to_owned()), ..read })
}

fn from_json(path: &Path) -> Result<SamplingDefaults, ArtifactsError> {
    let object = read_object(path)?.unwrap_or_default();
    let float = |key: &str| {
        let finite = |value: &Value| Some(value.as_f64()? as f32).filter(|number| number.is_finite());
        field(path, &object, key, "a number of 32 bits", finite)
    };
    let integer = |key: &str| {
        let expected = "an integer from 0 to 4294967295";
        field(path, &object, key, expected, |value| u32::try_from(value.as_u64()?).ok())
    };
    Ok(SamplingDefaults {
        file: Some(path.to_owned()),
        do_sample: field(path, &object, "do_sample", "true or false", Value::as_bool)?,
        temperature: float("temperature")?,
        top_k: integer("top_k")?,
        top_p: float("top_p")?,
        min_p: float("min_p")?,
        typical_p: float("typical_p")?,
        repetition_penalty: float("repetition_penalty")?,
        without_effect: WITHOUT_EFFECT.iter().filter(|name| object.get(**name).is_some_and(is_set)).copied().collect(),
    })
}

/// Returns true unless a value is transformers' default: nothing, no item, 0, or 1 for factors and numbers of beams.
fn is_set(value: &Value) -> bool {
    match value {
        Value::Null => false,
        Value::Bool(flag) => *flag,
        Value::Number(number) => ![Some(0.0), Some(1.0)].contains(&number.as_f64()),
        Value::String(text) => !text.is_empty(),
        Value::Array(items) => !items.is_empty(),
        Value::Object(fields) => !fields.is_empty(),
    }
}

/// Reads a field. Null is treated as absent.
fn field<T>(
    path: &Path,
    object: &Object,
    key: &str,
    expected: &'static str,
    read: impl Fn(&Value) -> Option<T>,
) -> Result<Option<T>, ArtifactsError> {
    let Some(value) = object.get(key).filter(|value| !value.is_null()) else { return Ok(None) };
    let wrong = || ArtifactsError::Field { path: path.to_owned(), field: key.to_owned(), expected };
    read(value).ok_or_else(wrong).map(Some)
}

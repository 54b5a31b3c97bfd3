//! The settings of a tower and of its processor in the header of an `mmproj` file. A setting that the
//! header leaves out is left out here: transformers' default applies.

use serde_json::json;
use tandem_model_files::excerpt;
use tandem_model_files::gguf::Value;

use super::architecture::Name;
use super::header::GgufHeader;
use super::projector::{GgufProjector, ProjectorConfig};
use crate::error::LoadError;

/// Whole numbers of every tower: the setting of `vision_config`, and the key.
const INTEGERS: &[Name] = &[
    ("hidden_size", "vision.embedding_length"),
    ("intermediate_size", "vision.feed_forward_length"),
    ("num_hidden_layers", "vision.block_count"),
    ("num_attention_heads", "vision.attention.head_count"),
    ("image_size", "vision.image_size"),
    ("patch_size", "vision.patch_size"),
];

const EPSILON: Name = ("layer_norm_eps", "vision.attention.layer_norm_epsilon");

/// Three numbers each, of the image processor.
const CHANNELS: &[Name] = &[("image_mean", "vision.image_mean"), ("image_std", "vision.image_std")];

/// Flags of the activation, and its name in transformers. llama.cpp's GELU is the approximation with
/// tanh.
const ACTIVATIONS: &[Name] = &[("gelu_pytorch_tanh", "use_gelu"), ("silu", "use_silu")];

/// Flags with the only supported value.
const FIXED: &[(&str, bool)] = &[
    ("has_vision_encoder", true),
    ("has_audio_encoder", false),
    ("has_text_encoder", false),
    ("has_llava_projector", false),
];

/// Keys that are read elsewhere.
const OTHERS: &[&str] = &[PROJECTOR, VISION_PROJECTOR, ROW_SIZE];

/// The projector of a file for images alone, and of one for images and audio.
const PROJECTOR: &str = "projector_type";
const VISION_PROJECTOR: &str = "vision.projector_type";

/// The numbers of a row that the language model takes.
const ROW_SIZE: &str = "vision.projection_dim";

/// Returns the name of the projector.
///
/// # Errors
/// A value of the header has the wrong type.
pub(crate) fn projector_name(header: &GgufHeader) -> Result<&str, LoadError> {
    let name = header.find(PROJECTOR)?;
    Ok(name.map_or_else(|| header.find(VISION_PROJECTOR), |name| Ok(Some(name)))?.unwrap_or_default())
}

/// Returns the numbers of a row that the language model takes.
///
/// # Errors
/// The value has the wrong type.
pub(crate) fn row_size(header: &GgufHeader) -> Result<Option<u32>, LoadError> {
    header.find(ROW_SIZE)
}

/// Returns the error of a key whose value is not supported.
pub(crate) fn refused(header: &GgufHeader, key: &str, value: impl std::fmt::Display) -> LoadError {
    LoadError::MmprojSetting { key: format!("{}.{key}", header.architecture()), value: excerpt(value).to_string() }
}

/// Returns all settings.
///
/// # Errors
/// A value of the header has the wrong type, or a key or its value is not supported.
pub(crate) fn config(header: &GgufHeader, projector: &GgufProjector) -> Result<ProjectorConfig, LoadError> {
    check_keys(header, projector)?;
    let mut config = ProjectorConfig::default();
    for (setting, key) in INTEGERS.iter().chain(projector.integers) {
        if let Some(value) = header.find::<u32>(key)? {
            config.vision.insert((*setting).into(), json!(value));
        }
    }
    if let Some(epsilon) = header.find::<f32>(EPSILON.1)? {
        config.vision.insert(EPSILON.0.into(), json!(f64::from(epsilon)));
    }
    for (setting, key) in CHANNELS {
        if let Some(values) = header.find::<&[f32]>(key)? {
            config.image.insert((*setting).into(), json!(values));
        }
    }
    add_activation(header, &mut config)?;
    (projector.add_implied)(header, &mut config)?;
    Ok(config)
}

/// Adds the activation of the MLPs, if the file names one.
fn add_activation(header: &GgufHeader, config: &mut ProjectorConfig) -> Result<(), LoadError> {
    for (activation, key) in ACTIVATIONS {
        if header.find(key)? != Some(true) {
            continue;
        }
        if config.vision.insert("hidden_act".into(), json!(activation)).is_some() {
            return Err(refused(header, key, true));
        }
    }
    Ok(())
}

/// Fails if the header has a setting that this project does not read.
fn check_keys(header: &GgufHeader, projector: &GgufProjector) -> Result<(), LoadError> {
    for (key, supported) in FIXED {
        if let Some(found) = header.find::<bool>(key)?
            && found != *supported
        {
            return Err(refused(header, key, found));
        }
    }
    let numbers = INTEGERS.iter().chain([&EPSILON]).chain(CHANNELS).chain(ACTIVATIONS).chain(projector.integers);
    let known: Vec<&str> = numbers
        .map(|(_, key)| *key)
        .chain(FIXED.iter().map(|(key, _)| *key))
        .chain(OTHERS.iter().chain(projector.keys).copied())
        .collect();
    let prefix = format!("{}.", header.architecture());
    let mut keys: Vec<&str> = header.file().keys().filter_map(|key| key.strip_prefix(prefix.as_str())).collect();
    keys.sort_unstable();
    match keys.into_iter().find(|key| !known.contains(key)) {
        None => Ok(()),
        Some(key) => {
            let value = header.file().metadata(&format!("{prefix}{key}"));
            Err(refused(header, key, value.map_or_else(String::new, Value::describe)))
        }
    }
}

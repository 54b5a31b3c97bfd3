//! Parts of the files that the model does not use.

use serde_json::{Value, json};
use tandem_model_files::{excerpt, shown};

use super::config::{ConfigError, Reads, unsupported};
use super::decoder::{Decoder, Pairs};
use super::head;
use crate::error::LoadError;
use crate::weights::ModelFile;
use crate::weights::gguf::architecture::CONVERTED;

/// The start of the names of a language model that has towers, in older and in newer folders.
const LANGUAGE_MODEL: &[&str] = &[
    "model.layers.",
    "model.embed_tokens",
    "model.norm.",
    "model.language_model.",
    "model.text_model.",
    "language_model.",
    "lm_head.",
];

/// The start of the names of modules beside the language model that answers do not depend on: the value head of
/// training by reinforcement, and the layers that draft several tokens. transformers ignores them too.
const OTHER_HEADS: &[&str] = &["v_head.", "mtp.", "model.mtp.", "model.language_model.mtp.", "language_model.mtp."];

/// The start of the names of heads of classifiers. A model that has one in place of an output matrix is not for answers.
/// With both, transformers ignores it.
const CLASSIFIERS: &[&str] = &["score.", "classifier."];

/// Settings without an effect that published configs have: they are of training or of the library, are read
/// elsewhere, or only with other settings.
const HARMLESS: &[&str] = &[
    "_attn_implementation_autoset",
    "_name_or_path",
    "architectures",
    "attention_dropout",
    "auto_map",
    "bos_token_id",
    "cache_implementation",
    "dtype",
    "embd_pdrop",
    "eos_token_id",
    "full_attention_interval",
    CONVERTED,
    "hidden_act",
    "image_token_id",
    "initializer_range",
    "language_model_only",
    "mamba_ssm_dtype",
    "max_window_layers",
    "model_type",
    "mtp_num_hidden_layers",
    "mtp_use_dedicated_embeddings",
    "original_max_position_embeddings",
    "output_router_logits",
    "pad_token_id",
    "pretraining_tp",
    "quantization_config",
    "resid_pdrop",
    "router_aux_loss_coef",
    "torch_dtype",
    "transformers_version",
    "use_cache",
    "video_token_id",
    "vision_config",
    "vision_end_token_id",
    "vision_start_token_id",
    "vision_token_id",
];

/// The sections with the settings of rotary embeddings.
const ROPE_SECTIONS: [&str; 2] = ["rope_parameters", "rope_scaling"];
/// The settings that such a section may have. Each type of embedding has some of them, and transformers ignores the others.
const ROPE_SETTINGS: &[&str] = &[
    "alpha",
    "attention_factor",
    "attn_factor",
    "beta_fast",
    "beta_slow",
    "extrapolation_factor",
    "factor",
    "finetuned",
    "high_freq_factor",
    "long_factor",
    "long_mscale",
    "low_freq_factor",
    "mrope_interleaved",
    "mrope_section",
    "mscale",
    "mscale_all_dim",
    "original_max_position_embeddings",
    "partial_rotary_factor",
    "rope_theta",
    "rope_type",
    "short_factor",
    "short_mscale",
    "truncate",
    "type",
];

/// Settings of every model, with an effect: settings of single layers, fused modules, and the file of the weights.
const OF_EVERY_MODEL: &[&str] = &["fusion_config", "per_layer_config", "transformers_weights"];

/// Checks the language model in `file`, of which `decoder` uses the tensors and `reads` are the settings that
/// were read. Logs the other settings, and heads beside the language model: as in transformers, they have no effect.
///
/// # Errors
/// The file has a tensor that the decoder does not use.
pub(super) fn check(file: &ModelFile, decoder: &Decoder, reads: &Reads) -> Result<(), LoadError> {
    let config = file.config();
    let has_towers = ["vision_config", "audio_config"].iter().any(|section| config[*section].is_object());
    let is_checked = |name: &String| !has_towers || is_of_language_model(name);
    let unused = file.unread().into_iter().filter(|name| is_checked(name) && !is_harmless(name, decoder));
    let may_classify = file.has(&format!("{}.weight", head::NAME));
    let is_head = |name: &str| starts_with(name, OTHER_HEADS) || (may_classify && starts_with(name, CLASSIFIERS));
    let (heads, unused): (Vec<_>, Vec<_>) = unused.partition(|name| is_head(name));
    if let Some(name) = unused.into_iter().min() {
        return Err(LoadError::TensorUnused { name });
    }
    if let Some(first) = heads.iter().min() {
        tracing::warn!(first = %excerpt(first), tensors = heads.len(), "other heads of the model have no effect");
    }
    let ignored = ignored(text_settings(config), reads);
    if !ignored.is_empty() {
        tracing::warn!(settings = %shown(ignored.join(", ")), "settings of the model have no effect, as in transformers");
    }
    Ok(())
}

/// Logs the tensors of a folder's towers that are not used, such as the layers after the one from which the features
/// are. transformers ignores them too.
pub(super) fn log_towers(file: &ModelFile) {
    let unused: Vec<_> = file.unread().into_iter().filter(|name| !is_of_language_model(name)).collect();
    if let Some(first) = unused.iter().min() {
        tracing::info!(first = %excerpt(first), tensors = unused.len(), "tensors beside the language model have no effect");
    }
}

/// Returns true if a tensor of a model with towers is one of the language model, or of a head.
fn is_of_language_model(name: &str) -> bool {
    [LANGUAGE_MODEL, OTHER_HEADS, CLASSIFIERS].iter().any(|starts| starts_with(name, starts))
}

fn starts_with(name: &str, starts: &[&str]) -> bool {
    starts.iter().any(|start| name.starts_with(start))
}

/// Checks the settings that transformers applies to the models of every architecture, and the names of those of rotary
/// embeddings, which have no effect if they are misspelt.
///
/// # Errors
/// One of them is set, and the architecture does not read it.
pub(super) fn check_settings(config: &Value, reads: &Reads) -> Result<(), ConfigError> {
    let unread = || OF_EVERY_MODEL.iter().filter(|name| !reads.contains(name));
    let all =
        [config, &config["text_config"]].into_iter().flat_map(|section| unread().map(|name| (name, &section[*name])));
    if let Some((name, value)) = all.into_iter().find(|(_, value)| !value.is_null() && **value != json!({})) {
        return Err(unsupported(name, value));
    }
    let sections = ROPE_SECTIONS.map(|name| (name, &text_settings(config)[name]));
    match sections.into_iter().find_map(|(name, section)| Some((name, unknown_rope_setting(section, reads)?))) {
        Some((name, setting)) => Err(unsupported(name, format_args!("the setting {setting}"))),
        None => Ok(()),
    }
}

/// Returns a setting that no rotary embedding has. A section may have one section for each type of layer.
fn unknown_rope_setting<'a>(section: &'a Value, reads: &Reads) -> Option<&'a str> {
    section.as_object()?.iter().find_map(|(name, value)| match value {
        Value::Object(_) => unknown_rope_setting(value, reads),
        _ if ROPE_SETTINGS.contains(&name.as_str()) || reads.contains(name) => None,
        _ => Some(name.as_str()),
    })
}

fn text_settings(config: &Value) -> &Value {
    if config["text_config"].is_object() { &config["text_config"] } else { config }
}

/// Returns the settings that are present and were not read.
fn ignored<'a>(settings: &'a Value, reads: &Reads) -> Vec<&'a str> {
    let is_ignored = |(name, value): &(&String, &Value)| {
        !value.is_null() && **value != Value::Bool(false) && !reads.contains(name) && !HARMLESS.contains(&name.as_str())
    };
    settings.as_object().into_iter().flatten().filter(is_ignored).map(|(name, _)| name.as_str()).collect()
}

/// Returns true if transformers does not use the tensor either: buffers of rotary embeddings, and keys and values
/// of layers that share those of another.
fn is_harmless(name: &str, decoder: &Decoder) -> bool {
    let shared = || {
        let (_, rest) = name.split_once("layers.")?;
        let (layer, part) = rest.split_once(".self_attn.")?;
        let layer = decoder.layers.get(layer.parse::<usize>().ok()?)?;
        let is_of_pair = ["k_proj.", "v_proj.", "k_norm.", "v_norm."].iter().any(|pair| part.starts_with(pair));
        Some(is_of_pair && matches!(layer.attention()?.pairs, Pairs::Shared(_)))
    };
    let is_of_rope = ["rotary_emb", "rotary_emb_local"].iter().any(|module| {
        name.rsplit_once('.').is_some_and(|(path, _)| path == *module || path.ends_with(&format!(".{module}")))
    });
    is_of_rope || shared().unwrap_or(false)
}

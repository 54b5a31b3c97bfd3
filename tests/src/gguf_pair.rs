//! Models with images as two GGUF files, made from Hugging Face folders as llama.cpp's converter
//! (`convert_hf_to_gguf.py`, with and without `--mmproj`) makes them. The converter changes names, the
//! order of rows, the weights of some norms, and divides some tensors.

mod delta_net;
mod families;
mod gguf_model;
mod hf_folder;
mod vocabulary;

use std::path::Path;

use serde_json::Value;
use tempfile::TempDir;

use families::{Family, find};
pub use gguf_model::{Entry, GgufModel, Tensor};
use hf_folder::HfFolder;

/// The names of the files that [`Pair::folder`] writes.
pub const MODEL: &str = "tiny.gguf";
pub const MMPROJ: &str = "mmproj-tiny.gguf";

/// A language model and its tower.
#[derive(Debug, Clone)]
pub struct Pair {
    /// The language model, with its tokenizer and its chat template.
    pub text: GgufModel,
    /// The tower and its projector.
    pub tower: GgufModel,
}

impl Pair {
    /// Converts the model in a folder.
    ///
    /// # Panics
    /// If the folder has no model of a family that `mmproj` files exist for.
    #[must_use]
    pub fn of(folder: &Path) -> Self {
        let folder = HfFolder::read(folder);
        let family = find(folder.config["model_type"].as_str().expect("a model type"));
        Self { text: text(family, &folder), tower: tower(family, &folder) }
    }

    /// Writes both files into a temporary folder.
    ///
    /// # Panics
    /// If the folder cannot be written.
    #[must_use]
    pub fn folder(&self) -> TempDir {
        let folder = TempDir::new().expect("a temporary folder");
        std::fs::write(folder.path().join(MODEL), self.text.bytes()).expect("the folder is writable");
        std::fs::write(folder.path().join(MMPROJ), self.tower.bytes()).expect("the folder is writable");
        folder
    }
}

/// Converts a Llama without images in a folder.
///
/// # Panics
/// If the folder has no such model.
#[must_use]
pub fn llama(folder: &Path) -> GgufModel {
    let family = find("smolvlm"); // its language model is a Llama
    let mut folder = HfFolder::read(folder);
    assert_eq!(folder.config["model_type"], "llama");
    let mut config = folder.config.clone();
    config["rope_theta"] = config["rope_parameters"]["rope_theta"].clone();
    folder.config["text_config"] = config;
    let renamed = folder
        .tensors
        .into_iter()
        .map(|(name, tensor)| (format!("{}{}", family.text, name.strip_prefix("model.").unwrap_or(&name)), tensor));
    folder.tensors = renamed.collect();
    text(family, &folder)
}

/// Integer settings of a language model: the GGUF key, and the name in `config.json`.
const TEXT_SIZES: &[(&str, &str)] = &[
    ("embedding_length", "hidden_size"),
    ("feed_forward_length", "intermediate_size"),
    ("block_count", "num_hidden_layers"),
    ("attention.head_count", "num_attention_heads"),
    ("attention.head_count_kv", "num_key_value_heads"),
    ("context_length", "max_position_embeddings"),
    ("attention.sliding_window", "sliding_window"),
];

/// Modules of a language model: in transformers below its prefix, and in GGUF.
const TEXT_MODULES: &[(&str, &str)] = &[("embed_tokens", "token_embd"), ("norm", "output_norm"), ("lm_head", "output")];

/// Converts the language model.
fn text(family: &Family, folder: &HfFolder) -> GgufModel {
    let mut model = GgufModel::of(family.architecture);
    let config = &folder.config["text_config"];
    let key = |key: &str| format!("{}.{key}", family.architecture);
    for (name, setting) in TEXT_SIZES {
        if let Some(value) = config[setting].as_u64() {
            model.set(&key(name), Entry::U32(value as u32));
        }
    }
    let head = head_size(config);
    for name in ["attention.key_length", "attention.value_length", "rope.dimension_count"] {
        model.set(&key(name), Entry::U32(head as u32));
    }
    let base = [&config["rope_theta"], &config["rope_parameters"]["rope_theta"]].into_iter().find_map(Value::as_f64);
    let epsilon = config["rms_norm_eps"].as_f64().unwrap_or(1e-6);
    model.set(&key("attention.layer_norm_rms_epsilon"), Entry::F32(epsilon as f32));
    model.set(&key("rope.freq_base"), Entry::F32(base.expect("a base") as f32));
    (family.describe_text)(config, &mut model);
    vocabulary::add(folder, &mut model);
    for (name, tensor) in &folder.tensors {
        if let Some((name, tensor)) = text_tensor(family, config, name, tensor) {
            model.tensors.insert(name, tensor);
        }
    }
    model
}

fn head_size(config: &Value) -> u64 {
    config["head_dim"].as_u64().unwrap_or_else(|| size(config, "hidden_size") / size(config, "num_attention_heads"))
}

/// Returns the name and the contents of a language model's tensor.
fn text_tensor(family: &Family, config: &Value, name: &str, tensor: &Tensor) -> Option<(String, Tensor)> {
    let rest = name.strip_prefix(family.text)?;
    let layer = rest.strip_prefix("layers.").and_then(|rest| rest.split_once('.'));
    if let Some((layer, part)) = layer
        && let Some((stored, tensor)) = (family.convert_text)(config, part, tensor)
    {
        return Some((format!("blk.{layer}.{stored}"), tensor));
    }
    let (module, kind) = rest.rsplit_once('.')?;
    let find = |table: &[(&str, &str)], part: &str| {
        table.iter().find(|(here, _)| *here == part).map(|(_, there)| (*there).to_owned())
    };
    let stored = match module.strip_prefix("layers.").and_then(|rest| rest.split_once('.')) {
        None => find(TEXT_MODULES, module)?,
        Some((layer, part)) => format!("blk.{layer}.{}", find(&family.text_layer.concat(), part)?),
    };
    let mut tensor = tensor.clone();
    if family.norm_offset != 0.0 && module.ends_with("norm") {
        tensor.values.iter_mut().for_each(|value| *value += family.norm_offset);
    }
    if family.interleaved && (module.ends_with("q_proj") || module.ends_with("k_proj")) {
        tensor = tensor.interleaved(head_size(config) as usize);
    }
    Some((format!("{stored}.{kind}"), tensor))
}

/// Integer settings of a tower: the GGUF key, and its names in `vision_config`.
const TOWER_SIZES: &[(&str, &[&str])] = &[
    ("vision.embedding_length", &["hidden_size"]),
    ("vision.feed_forward_length", &["intermediate_size"]),
    ("vision.block_count", &["num_hidden_layers", "depth"]),
    ("vision.attention.head_count", &["num_attention_heads", "num_heads"]),
    ("vision.patch_size", &["patch_size"]),
];

/// The image size that the converter writes for towers without one.
const ANY_IMAGE_SIZE: u64 = 560;

/// Converts the tower.
fn tower(family: &Family, folder: &HfFolder) -> GgufModel {
    let mut model = GgufModel::of("clip");
    let vision = &folder.config["vision_config"];
    let key = |key: &str| format!("clip.{key}");
    for (name, settings) in TOWER_SIZES {
        let value = settings.iter().find_map(|setting| vision[setting].as_u64()).expect("a size");
        model.set(&key(name), Entry::U32(value as u32));
    }
    let image = vision["image_size"].as_u64().unwrap_or(ANY_IMAGE_SIZE);
    model.set(&key("vision.image_size"), Entry::U32(image as u32));
    model.set(&key("vision.projection_dim"), Entry::U32(size(&folder.config["text_config"], "hidden_size") as u32));
    model.set(&key("vision.attention.layer_norm_epsilon"), Entry::F32(1e-6));
    model.set(&key("projector_type"), Entry::Text(family.projector.to_owned()));
    model.set(&key("has_vision_encoder"), Entry::Bool(true));
    model.set(&key(family.activation), Entry::Bool(true));
    for name in ["image_mean", "image_std"] {
        let values = folder.preprocessor[name].as_array().expect("three numbers");
        let values = values.iter().map(|value| value.as_f64().expect("a number") as f32).collect();
        model.set(&key(&format!("vision.{name}")), Entry::F32s(values));
    }
    (family.describe_tower)(folder, &mut model);
    for (name, tensor) in &folder.tensors {
        model.tensors.extend((family.convert)(&folder.config, name, tensor));
    }
    model
}

fn size(config: &Value, setting: &str) -> u64 {
    config[setting].as_u64().unwrap_or_else(|| panic!("{setting} is a size"))
}

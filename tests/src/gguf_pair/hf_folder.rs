//! The files of a Hugging Face folder that a converter reads.

use std::collections::BTreeMap;
use std::path::Path;

use half::bf16;
use serde_json::Value;

use super::gguf_model::Tensor;

/// A folder.
#[derive(Debug)]
pub(super) struct HfFolder {
    pub(super) config: Value,
    pub(super) generation: Value,
    pub(super) preprocessor: Value,
    pub(super) processor: Value,
    pub(super) tokenizer: Value,
    pub(super) tokenizer_config: Value,
    pub(super) template: String,
    pub(super) tensors: BTreeMap<String, Tensor>,
}

impl HfFolder {
    /// Reads a folder. A file that it lacks is null, or an empty template.
    pub(super) fn read(folder: &Path) -> Self {
        let file =
            |name: &str| Some(folder.join(name)).filter(|path| path.exists()).map_or(Value::Null, |path| read(&path));
        Self {
            config: file("config.json"),
            generation: file("generation_config.json"),
            preprocessor: file("preprocessor_config.json"),
            processor: file("processor_config.json"),
            tokenizer: file("tokenizer.json"),
            tokenizer_config: file("tokenizer_config.json"),
            template: std::fs::read_to_string(folder.join("chat_template.jinja")).unwrap_or_default(),
            tensors: tensors(&std::fs::read(folder.join("model.safetensors")).expect("weights")),
        }
    }
}

/// Reads tensors of f32 and bf16.
fn tensors(file: &[u8]) -> BTreeMap<String, Tensor> {
    let (length, rest) = file.split_first_chunk().expect("a length");
    let (header, data) = rest.split_at(u64::from_le_bytes(*length) as usize);
    let header: BTreeMap<String, Value> = serde_json::from_slice(header).expect("a header");
    let numbers = |list: &Value| -> Vec<usize> { serde_json::from_value(list.clone()).expect("whole numbers") };
    let tensor = |(name, entry): (String, Value)| {
        let range = numbers(&entry["data_offsets"]);
        let data = &data[range[0]..range[1]];
        let values = match entry["dtype"].as_str() {
            Some("F32") => data.as_chunks().0.iter().map(|bytes| f32::from_le_bytes(*bytes)).collect(),
            Some("BF16") => data.as_chunks().0.iter().map(|bytes| bf16::from_le_bytes(*bytes).to_f32()).collect(),
            other => panic!("{name} has the type {other:?}"),
        };
        (name, Tensor { shape: numbers(&entry["shape"]), values })
    };
    header.into_iter().filter(|(name, _)| name != "__metadata__").map(tensor).collect()
}

fn read(path: &Path) -> Value {
    serde_json::from_str(&std::fs::read_to_string(path).expect("a file")).expect("JSON")
}

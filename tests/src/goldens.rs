//! The goldens of the default model.

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::files::repository;

/// One golden of the default model: transformers' output, from `golden/make_smollm2.py`.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Golden {
    /// The case's name.
    pub id: String,
    /// The messages: role and content.
    pub messages: Vec<Value>,
    /// The prompt that the model's template renders from the messages.
    pub prompt: String,
    /// The prompt's token ids.
    pub prompt_ids: Vec<u32>,
    /// The first 64 ids that greedy decoding in f32 generates; fewer if an eos token ended the
    /// output.
    pub greedy_ids: Vec<u32>,
}

/// Returns every golden of `golden/smollm2.json`.
///
/// # Panics
/// If the file is missing or has another format than the script writes.
#[must_use]
pub fn goldens() -> Vec<Golden> {
    let path = repository().join("tests/golden/smollm2.json");
    let text = std::fs::read_to_string(path).expect("the goldens are readable");
    let mut file: Value = serde_json::from_str(&text).expect("the goldens are JSON");
    serde_json::from_value(file["cases"].take()).expect("the goldens have the script's format")
}

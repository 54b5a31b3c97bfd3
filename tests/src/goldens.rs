//! The goldens of the default model.

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::files::repository;

/// What transformers makes of the default model, from `goldens/make_smollm2.py`.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Golden {
    /// Names the case.
    pub id: String,
    /// Role and content.
    pub messages: Vec<Value>,
    /// The prompt that the model's template makes of them.
    pub prompt: String,
    /// Its token ids.
    pub prompt_ids: Vec<u32>,
    /// The 64 ids that greedy decoding goes on with in f32, fewer where an eos ended it.
    pub greedy_ids: Vec<u32>,
}

/// Every golden of `goldens/smollm2.json`.
///
/// # Panics
/// The file is not what its script writes.
#[must_use]
pub fn goldens() -> Vec<Golden> {
    let path = repository().join("tests/goldens/smollm2.json");
    let text = std::fs::read_to_string(path).expect("the goldens");
    let mut file: Value = serde_json::from_str(&text).expect("JSON");
    serde_json::from_value(file["cases"].take()).expect("cases")
}

//! The vision oracle: tiny models with images, and transformers' outputs. It is not in the
//! repository: tests read it from the folder TANDEM_VISION_ORACLE, or from `../shared/vision`.
//! Without it, they are skipped.

use std::path::{Path, PathBuf};

use serde_json::Value;
use tandem_tests::repository;

/// The models of the oracle.
pub const FOLDERS: [&str; 9] =
    ["smolvlm", "gemma3", "gemma3_pas", "gemma4", "gemma4_bidi", "qwen2_5_vl", "qwen3_vl", "mistral3", "internvl"];

/// Returns the oracle's folder, if it is there. Otherwise prints that the test is skipped.
#[must_use]
pub fn folder() -> Option<PathBuf> {
    let given = std::env::var_os("TANDEM_VISION_ORACLE").map(PathBuf::from);
    let path = given.unwrap_or_else(|| repository().join("../shared/vision"));
    let found = path.join("goldens").is_dir();
    if !found {
        eprintln!("skipped: there is no vision oracle in {}", path.display());
    }
    found.then_some(path)
}

/// Reads the golden of a model.
///
/// # Panics
/// If the file is not readable.
#[must_use]
pub fn golden(oracle: &Path, model: &str) -> Value {
    json(&oracle.join("goldens").join(format!("{model}.json")))
}

/// Reads a JSON file.
///
/// # Panics
/// If the file is not readable.
#[must_use]
pub fn json(path: &Path) -> Value {
    serde_json::from_str(&std::fs::read_to_string(path).expect("a file")).expect("JSON")
}

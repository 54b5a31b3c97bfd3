//! Readers for the corpus beside the repository.

use std::path::Path;

use serde_json::Value;

pub fn read(path: &Path) -> Value {
    serde_json::from_slice(&std::fs::read(path).expect("a file of the corpus is readable"))
        .expect("a file of the corpus is JSON")
}

/// Returns a conversation of the corpus as a request that renders as in transformers: with the
/// template, and without normalization.
pub fn request(corpus: &Path, id: &str) -> Value {
    let mut request = read(&corpus.join(format!("conversations/{id}.json")));
    let object = request.as_object_mut().expect("a request of the corpus is an object");
    object.retain(|key, _| !["id", "tags"].contains(&key.as_str()));
    request["adapter"] = "tokenizer-template".into();
    request["normalization"] = "none".into();
    request["render_time"] = "2025-07-04T09:05:03".into();
    request
}

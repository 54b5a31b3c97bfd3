//! The names of safetensors files in a model's folder.

pub(super) const FILE: &str = "model.safetensors";
pub(super) const INDEX: &str = "model.safetensors.index.json";

//! The names of the files in a model's folder.

pub(super) const TOKENIZER: &str = "tokenizer.json";
pub(super) const TOKENIZER_CONFIG: &str = "tokenizer_config.json";
pub(super) const CONFIG: &str = "config.json";
pub(super) const GENERATION_CONFIG: &str = "generation_config.json";
pub(super) const TEMPLATE: &str = "chat_template.jinja";
/// The settings of an image or audio processor. One of them may contain its template.
pub(super) const PROCESSOR: &str = "processor_config.json";
pub(super) const PREPROCESSOR: &str = "preprocessor_config.json";
/// The template of a model with an image or audio processor, in older repositories.
pub(super) const PROCESSOR_TEMPLATE: &str = "chat_template.json";
pub(super) const MORE_TEMPLATES: &str = "additional_chat_templates";

/// The known model files.
pub(super) const FILES: &[&str] =
    &[TOKENIZER_CONFIG, TOKENIZER, CONFIG, GENERATION_CONFIG, TEMPLATE, PROCESSOR_TEMPLATE, MORE_TEMPLATES];

/// Returns true for a name of the weights that transformers reads and that are no safetensors.
pub(super) fn is_pickled(name: &str) -> bool {
    name.starts_with("pytorch_model") && name.ends_with(".bin")
}

//! Folders without the name of an architecture.

use tandem_model_files::artifacts::Artifacts;

use crate::error::LoadError;

/// Files of folders without `config.json`, and the remedy.
const OTHER_FORMS: [(&str, &str); 2] = [
    ("adapter_config.json", "; it has a LoRA adapter (adapter_config.json): merge it into its base model"),
    ("params.json", "; params.json is of Mistral's own form: take the files config.json and model*.safetensors"),
];

/// Returns the error of a folder that names no architecture.
pub(super) fn error(artifacts: &Artifacts) -> LoadError {
    let path = artifacts.path.clone();
    if !artifacts.config.is_null() {
        return LoadError::NoModelType { path: path.join("config.json") };
    }
    let other = OTHER_FORMS.iter().find(|(file, _)| path.join(file).exists());
    LoadError::NoConfig { path, remedy: other.map_or("", |(_, remedy)| remedy) }
}

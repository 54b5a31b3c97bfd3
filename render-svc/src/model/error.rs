//! The reasons why the files of a model could not be loaded.

use std::path::PathBuf;

use tandem_model_files::artifacts::ArtifactsError;
use tandem_template::CompileError;

/// The reason why the files of a model could not be loaded.
#[derive(Debug, thiserror::Error)]
pub enum LoadError {
    /// The model's files cannot be read.
    #[error(transparent)]
    Artifacts(#[from] ArtifactsError),
    /// A chat template does not compile.
    #[error("the chat template {name:?} of {} does not compile", path.display())]
    Template {
        /// Path of the model.
        path: PathBuf,
        /// Name of the template.
        name: String,
        /// The problem in its source.
        source: CompileError,
    },
}

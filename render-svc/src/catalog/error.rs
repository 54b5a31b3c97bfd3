//! The reasons why the models of a server could not be loaded.

use std::io;
use std::path::PathBuf;
use std::sync::Arc;

use crate::error::Error;
use crate::model::LoadError;
use crate::parse::RulesProblem;

/// The reason why a model, or the whole catalog, could not be loaded.
#[derive(Debug, thiserror::Error)]
pub enum CatalogError {
    /// A folder or file cannot be read.
    #[error("cannot read {}", path.display())]
    Read {
        /// Path of the folder or file.
        path: PathBuf,
        /// Error of the operating system.
        source: io::Error,
    },
    /// A source contains no model.
    #[error("there is no model at {}: a model is a .gguf file, or a folder with a tokenizer_config.json, tokenizer.json, config.json or chat_template.jinja", path.display())]
    NotAModel {
        /// Path of the source.
        path: PathBuf,
    },
    /// The configuration of models is invalid.
    #[error("{}: {problem}", path.display())]
    Config {
        /// Path of the configuration.
        path: PathBuf,
        /// The problem and its place.
        problem: String,
    },
    /// A toggle in the configuration of models has the name of a parameter of `apply_chat_template`,
    /// which no template gets.
    #[error(
        "{}: {}: toggles.{name} is a parameter of apply_chat_template, not a variable of templates: remove it",
        path.display(),
        model.display()
    )]
    ReservedToggle {
        /// Path of the configuration.
        path: PathBuf,
        /// Path of the model.
        model: PathBuf,
        /// Name of the toggle.
        name: String,
    },
    /// Two models have the same id or alias.
    #[error("two models are called {id:?}: {} and {}", first.display(), second.display())]
    DuplicateId {
        /// The id or alias.
        id: String,
        /// Path of one model.
        first: PathBuf,
        /// Path of the other model.
        second: PathBuf,
    },
    /// The files of a model cannot be loaded.
    #[error(transparent)]
    Model(Arc<LoadError>),
    /// No adapter renders for the model, or its configured adapter cannot.
    #[error("cannot choose an adapter for {}", path.display())]
    Adapter {
        /// Path of the model.
        path: PathBuf,
        /// The reason.
        source: Box<Error>,
    },
    /// The configured rules for the model's answers cannot be used.
    #[error("cannot read answers of {}", path.display())]
    Rules {
        /// Path of the model.
        path: PathBuf,
        /// The reason.
        source: RulesProblem,
    },
    /// There are models, and none of them can be loaded.
    #[error(transparent)]
    NoneLoaded(Arc<CatalogError>),
}

impl From<LoadError> for CatalogError {
    fn from(error: LoadError) -> Self {
        Self::Model(Arc::new(error))
    }
}

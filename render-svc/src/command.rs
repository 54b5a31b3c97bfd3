//! The error that ends a command of the program.

use std::io;
use std::path::PathBuf;
use std::sync::Arc;

use tandem_common::call::CredentialsError;
use tandem_common::serve::ServeError;
use tokio::task::JoinError;

use crate::catalog::CatalogError;
use crate::error::Error;

/// The reason why a command ended.
#[derive(Debug, thiserror::Error)]
pub enum CommandError {
    /// The request failed.
    #[error(transparent)]
    Request(#[from] Error),
    /// The models cannot be loaded.
    #[error(transparent)]
    Models(#[from] CatalogError),
    /// A model cannot be loaded.
    #[error(transparent)]
    Model(Arc<CatalogError>),
    /// The credentials for the generation service cannot be used.
    #[error(transparent)]
    Credentials(#[from] CredentialsError),
    /// The server cannot start, or failed.
    #[error(transparent)]
    Serve(#[from] ServeError),
    /// The file of requests cannot be opened.
    #[error("cannot read {}", path.display())]
    Input {
        /// The file.
        path: PathBuf,
        /// The cause.
        source: io::Error,
    },
    /// Lines of `--jsonl` failed. Their answers have the reasons.
    #[error("{failed} of {total} requests failed")]
    LinesFailed {
        /// The failed requests.
        failed: usize,
        /// All requests.
        total: usize,
    },
    /// The input, the output or a signal handler failed.
    #[error(transparent)]
    Io(#[from] io::Error),
    /// The task that loads the models panicked.
    #[error(transparent)]
    Panicked(#[from] JoinError),
}

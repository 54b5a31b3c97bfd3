//! The error that ends a command of the program.

use std::io;
use std::path::PathBuf;

use tandem_common::serve::ServeError;
use tandem_core::error::{LoadError, StepError};
use tokio::task::JoinError;

/// The reason why a command ended.
#[derive(Debug, thiserror::Error)]
pub enum CommandError {
    /// The model cannot be loaded.
    #[error("{}: {}", error.reason().name(), error.chain())]
    Load {
        /// The cause, which the message contains.
        error: LoadError,
    },
    /// The model cannot compute.
    #[error("{}: {}", error.reason().name(), error.chain())]
    Step {
        /// The cause, which the message contains.
        error: StepError,
    },
    /// The request failed. The message starts with the reason.
    #[error("{message}")]
    Request {
        /// The reason, the field and the problem.
        message: String,
    },
    /// Lines of `--jsonl` failed. Their answers have the reasons.
    #[error("{failed} of {total} requests failed")]
    LinesFailed {
        /// The failed requests.
        failed: usize,
        /// All requests.
        total: usize,
    },
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
    /// The input, the output or a socket failed.
    #[error(transparent)]
    Io(#[from] io::Error),
    /// A task of the server panicked.
    #[error(transparent)]
    Panicked(#[from] JoinError),
    /// The engine's thread panicked.
    #[error("engine thread panicked")]
    EnginePanicked,
    /// The engine stopped after an error.
    #[error("engine failed")]
    EngineFailed,
}

impl From<LoadError> for CommandError {
    fn from(error: LoadError) -> Self {
        Self::Load { error }
    }
}

impl From<StepError> for CommandError {
    fn from(error: StepError) -> Self {
        Self::Step { error }
    }
}

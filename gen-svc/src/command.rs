//! The error that ends a command of the program.

use std::io;
use std::path::PathBuf;

use tandem_common::serve::ServeError;
use tokio::task::JoinError;

use crate::error::Error;

/// The reason why a command ended.
#[derive(Debug, thiserror::Error)]
pub enum CommandError {
    /// The model or the engine cannot be used.
    #[error("{}: {}", error.reason().name(), error.chain())]
    Service {
        /// The cause, which the message contains.
        error: Error,
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

impl From<Error> for CommandError {
    fn from(error: Error) -> Self {
        Self::Service { error }
    }
}

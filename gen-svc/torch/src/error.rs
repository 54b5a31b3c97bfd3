//! The errors of this crate.

mod fault;

use tandem_core::error::{DeviceFault, LoadError, StepError};
use tch::TchError;

/// Why libtorch cannot load a model, or compute.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// libtorch's error.
    #[error(transparent)]
    Torch(#[from] TchError),
    /// Another error of a computation.
    #[error(transparent)]
    Step(#[from] StepError),
    /// The model cannot be loaded.
    #[error(transparent)]
    Load(#[from] LoadError),
}

impl Error {
    /// Returns the failure of the device that the error reports, if it does.
    #[must_use]
    pub fn device_fault(&self) -> Option<DeviceFault> {
        match self {
            Self::Torch(TchError::Torch(text)) => fault::device_fault(text),
            Self::Torch(_) | Self::Load(_) => None,
            Self::Step(error) => error.device_fault(),
        }
    }

    /// Returns true if the device has too little memory for a call.
    #[must_use]
    pub fn is_out_of_memory(&self) -> bool {
        self.device_fault() == Some(DeviceFault::OutOfMemory)
    }

    /// Returns this error and its causes in one line.
    #[must_use]
    pub fn chain(&self) -> String {
        match self {
            Self::Torch(error) => format!("libtorch failed: {error}"),
            Self::Step(error) => error.chain(),
            Self::Load(error) => error.chain(),
        }
    }
}

impl From<Error> for StepError {
    fn from(error: Error) -> Self {
        let fault = error.device_fault();
        match error {
            Error::Step(error) => error,
            Error::Torch(error) => Self::Library { fault, source: Box::new(error) },
            Error::Load(error) => Self::Library { fault, source: Box::new(error) },
        }
    }
}

impl From<Error> for LoadError {
    fn from(error: Error) -> Self {
        match error {
            Error::Load(error) => error,
            error => Self::Step(error.into()),
        }
    }
}

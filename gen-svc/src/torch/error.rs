//! The errors of libtorch.

use tch::TchError;

use crate::error::{DeviceFault, Error};

impl From<TchError> for Error {
    fn from(error: TchError) -> Self {
        let fault = match &error {
            TchError::Torch(text) => DeviceFault::of(text),
            _ => None,
        };
        Self::Torch { fault, source: Box::new(error) }
    }
}

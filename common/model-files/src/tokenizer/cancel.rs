//! Cancellation as an error of the tokenizer.

use super::error::TokenizerError;
use crate::cancel::CancelScope;

impl CancelScope {
    /// Fails if the token of the thread's scope is cancelled.
    ///
    /// # Errors
    /// [`TokenizerError::Cancelled`].
    pub fn check() -> Result<(), TokenizerError> {
        check()
    }
}

/// Fails if the token of the thread's scope is cancelled.
pub(super) fn check() -> Result<(), TokenizerError> {
    if CancelScope::is_cancelled() { Err(TokenizerError::Cancelled) } else { Ok(()) }
}

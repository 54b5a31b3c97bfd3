//! Cancellation of long work: encoding ends soon after its caller has gone.

use std::cell::RefCell;

use tokio_util::sync::CancellationToken;

use super::error::TokenizerError;

thread_local! {
    static CURRENT: RefCell<Option<CancellationToken>> = const { RefCell::new(None) };
}

/// While it exists, encoding on this thread fails with [`TokenizerError::Cancelled`] once its token
/// is cancelled. Other long work on the thread calls [`check`](Self::check).
#[derive(Debug)]
pub struct CancelScope {
    outer: Option<CancellationToken>,
}

impl CancelScope {
    /// Starts a scope on this thread.
    #[must_use]
    pub fn start(cancelled: CancellationToken) -> Self {
        Self { outer: CURRENT.replace(Some(cancelled)) }
    }

    /// Returns the token of the thread's scope, for a scope on another thread.
    #[must_use]
    pub fn token() -> Option<CancellationToken> {
        CURRENT.with_borrow(Clone::clone)
    }

    /// Fails if the token of the thread's scope is cancelled.
    ///
    /// # Errors
    /// [`TokenizerError::Cancelled`].
    pub fn check() -> Result<(), TokenizerError> {
        check()
    }
}

impl Drop for CancelScope {
    fn drop(&mut self) {
        CURRENT.set(self.outer.take());
    }
}

/// Fails if the token of the thread's scope is cancelled.
pub(super) fn check() -> Result<(), TokenizerError> {
    let is_cancelled = CURRENT.with_borrow(|current| current.as_ref().is_some_and(CancellationToken::is_cancelled));
    if is_cancelled { Err(TokenizerError::Cancelled) } else { Ok(()) }
}

//! Cancellation of long work: it ends soon after its caller has gone, or the server shuts down.

use std::cell::RefCell;

use tokio_util::sync::CancellationToken;

thread_local! {
    static CURRENT: RefCell<Option<CancellationToken>> = const { RefCell::new(None) };
}

/// While it exists, long work on this thread fails once its token is cancelled: encoding, and opening a model
/// of several files. Other work calls [`check`](Self::check).
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

    /// Returns true if the token of the thread's scope is cancelled.
    pub(crate) fn is_cancelled() -> bool {
        CURRENT.with_borrow(|current| current.as_ref().is_some_and(CancellationToken::is_cancelled))
    }
}

impl Drop for CancelScope {
    fn drop(&mut self) {
        CURRENT.set(self.outer.take());
    }
}

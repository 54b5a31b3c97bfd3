//! The state of a server and its engine, from the load to the shutdown.
//!
//! One channel holds the state. Health, the control service, the handlers and the engine observe
//! it. One cancellation token cancels the work in progress: a load, or running requests.

use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use crate::error::RequestError;

/// The state of a server. It only advances.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum ServerState {
    /// The model is being loaded. Requests are rejected.
    #[default]
    Loading,
    /// Requests are accepted.
    Serving,
    /// New requests are rejected. Accepted requests continue.
    Draining,
    /// The engine panicked, or its device failed. All requests fail, and the process ends.
    Failed,
}

/// A handle on the state. Clones share one state.
#[derive(Debug, Clone, Default)]
pub struct Lifecycle {
    state: watch::Sender<ServerState>,
    work: CancellationToken,
}

impl Lifecycle {
    /// Returns the current state.
    #[must_use]
    pub fn state(&self) -> ServerState {
        *self.state.borrow()
    }

    /// Fails unless requests are accepted.
    ///
    /// # Errors
    /// [`RequestError::Loading`], [`RequestError::Draining`] or [`RequestError::EngineFailed`], by the state.
    pub fn check_serving(&self) -> Result<(), RequestError> {
        match self.state() {
            ServerState::Loading => Err(RequestError::Loading),
            ServerState::Serving => Ok(()),
            ServerState::Draining => Err(RequestError::Draining),
            ServerState::Failed => Err(RequestError::EngineFailed),
        }
    }

    /// Starts to accept requests after the load. Returns false if the server already drains.
    pub fn serve(&self) -> bool {
        self.state.send_if_modified(|state| {
            let is_loading = *state == ServerState::Loading;
            if is_loading {
                *state = ServerState::Serving;
            }
            is_loading
        });
        self.state() == ServerState::Serving
    }

    /// Rejects new requests. A load is cancelled; accepted requests continue.
    pub fn drain(&self) {
        self.state.send_if_modified(|state| {
            // In these two states, no running request can finish, so the work is cancelled at once.
            if matches!(*state, ServerState::Loading | ServerState::Failed) {
                self.work.cancel();
            }
            advance(state, ServerState::Draining)
        });
    }

    /// Rejects new requests, and cancels queued and running requests within one step.
    pub fn stop(&self) {
        self.work.cancel();
        self.drain();
    }

    /// Marks the engine as failed.
    pub fn fail(&self) {
        self.state.send_if_modified(|state| {
            if *state == ServerState::Draining {
                self.work.cancel();
            }
            advance(state, ServerState::Failed)
        });
    }

    /// Returns true if the work in progress is cancelled.
    #[must_use]
    pub fn is_stopped(&self) -> bool {
        self.work.is_cancelled()
    }

    /// Returns the token that cancels the work in progress.
    #[must_use]
    pub fn cancellation(&self) -> CancellationToken {
        self.work.clone()
    }

    /// Waits until the server drains.
    pub async fn draining(&self) {
        self.reached(ServerState::Draining).await;
    }

    /// Waits until the engine has failed.
    pub async fn failed(&self) {
        self.reached(ServerState::Failed).await;
    }

    /// Waits until a shutdown is requested, also after the engine has failed.
    pub async fn shutdown_requested(&self) {
        tokio::select! {
            () = self.draining() => {}
            () = self.work.cancelled() => {}
        }
    }

    async fn reached(&self, wanted: ServerState) {
        let reached = self.state.subscribe().wait_for(|state| *state == wanted).await.map(drop);
        reached.expect("the sender lives as long as self");
    }
}

/// Advances to `next`, never back. Returns true if the state changes.
fn advance(state: &mut ServerState, next: ServerState) -> bool {
    let changes = *state < next;
    *state = next.max(*state);
    changes
}

//! The shutdown of a service: its requests, and the time between NOT_SERVING and the drain.

use std::time::Duration;

use rustix::process::{Signal, getpid, kill_process};
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::mpsc;

use super::error::ServeError;
use super::health::Health;

/// The requests to shut down that are kept. A third one has no effect.
const REQUESTS: usize = 2;

/// Receives requests to shut down. The first one starts the shutdown, the second one ends the drain
/// delay. A dropped sender is both.
#[derive(Debug)]
pub struct Shutdown(mpsc::Receiver<()>);

impl Shutdown {
    /// Creates a shutdown and the sender of its requests.
    #[must_use]
    pub fn channel() -> (mpsc::Sender<()>, Self) {
        let (send, received) = mpsc::channel(REQUESTS);
        (send, Self(received))
    }

    /// Returns the shutdown that SIGTERM or SIGINT requests. A SIGINT after the first signal ends
    /// the process at once, even with calls in progress.
    ///
    /// The handlers are installed before this returns.
    ///
    /// # Errors
    /// Fails if the signal handlers cannot be installed.
    pub fn on_signals() -> Result<Self, ServeError> {
        let install = |kind| signal(kind).map_err(ServeError::Signal);
        let (mut terminate, mut interrupt) = (install(SignalKind::terminate())?, install(SignalKind::interrupt())?);
        let (send, shutdown) = Self::channel();
        tokio::spawn(async move {
            tokio::select! {
                _ = terminate.recv() => {}
                _ = interrupt.recv() => {}
            }
            // The receiver is gone if the service ended for another reason.
            let _ = send.try_send(());
            loop {
                tokio::select! {
                    _ = terminate.recv() => {}
                    _ = interrupt.recv() => break,
                }
                let _ = send.try_send(());
            }
            tracing::warn!("second interrupt; ending at once");
            // `exit` would run destructors that libtorch's threads still need.
            let _ = kill_process(getpid(), Signal::KILL);
            // The first process of a container ignores its own SIGKILL.
            std::process::abort();
        });
        Ok(shutdown)
    }

    /// Waits for a request. A ready service then reports NOT_SERVING, and still accepts calls for
    /// `delay` or until the second request.
    pub async fn announced(mut self, health: &Health, delay: Duration) {
        self.0.recv().await;
        if delay.is_zero() || !health.is_ready() {
            return;
        }
        health.close().await;
        tracing::info!(seconds = delay.as_secs(), "shutting down; calls are still accepted");
        let _ = tokio::time::timeout(delay, self.0.recv()).await;
    }
}

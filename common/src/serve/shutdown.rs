//! The signals that shut a service down.

use std::future::Future;

use rustix::process::{Signal, getpid, kill_process};
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::oneshot;

use super::error::ServeError;

/// Returns a future that waits for SIGTERM or SIGINT. A later SIGINT ends the process at once, even
/// with calls in progress.
///
/// The handlers are installed before this returns, not when the future is first polled.
///
/// # Errors
/// Fails if the signal handlers cannot be installed.
pub fn shutdown_signal() -> Result<impl Future<Output = ()> + Send, ServeError> {
    let install = |kind| signal(kind).map_err(ServeError::Signal);
    let (mut terminate, mut interrupt) = (install(SignalKind::terminate())?, install(SignalKind::interrupt())?);
    let (send, received) = oneshot::channel();
    tokio::spawn(async move {
        tokio::select! {
            _ = terminate.recv() => {}
            _ = interrupt.recv() => {}
        }
        // The receiver is gone if the service ended for another reason.
        let _ = send.send(());
        interrupt.recv().await;
        tracing::warn!("second interrupt; ending at once");
        // `exit` would run destructors that libtorch's threads still need.
        let _ = kill_process(getpid(), Signal::KILL);
        // The first process of a container ignores its own SIGKILL.
        std::process::abort();
    });
    Ok(async {
        let _ = received.await;
    })
}

//! The scheduling priority of threads.

use std::sync::LazyLock;

use tokio::runtime::{Builder, Runtime};
use tokio::task::{JoinHandle, spawn_blocking};

/// The niceness of threads that compute. The scheduler prefers threads that serve calls, which need a
/// core for a short time only.
#[cfg(target_os = "linux")]
const NICENESS: i32 = 5;

/// The threads of long work. Their priority cannot be raised again, so that no other work shares them.
/// None if they are not available.
static LONG_WORK: LazyLock<Option<Runtime>> =
    LazyLock::new(|| Builder::new_current_thread().thread_name("long-work").on_thread_start(lower).build().ok());

/// Lowers the priority of this thread, and of the threads that it starts later. Other systems than
/// Linux have one priority for a process, which stays as it is.
pub fn lower() {
    #[cfg(target_os = "linux")]
    if let Err(error) = rustix::process::setpriority_process(None, NICENESS) {
        tracing::debug!(%error, "priority of the thread not changed");
    }
}

/// Runs work as tokio's `spawn_blocking` does: on a thread of low priority if it takes long.
pub fn spawn_work<T: Send + 'static>(is_long: bool, work: impl FnOnce() -> T + Send + 'static) -> JoinHandle<T> {
    match LONG_WORK.as_ref().filter(|_| is_long) {
        Some(runtime) => runtime.spawn_blocking(work),
        None => spawn_blocking(work),
    }
}

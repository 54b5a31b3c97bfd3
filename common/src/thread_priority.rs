//! The scheduling priority of threads.

/// The niceness of threads that compute. The scheduler prefers threads that serve calls, which need a
/// core for a short time only.
#[cfg(target_os = "linux")]
const NICENESS: i32 = 5;

/// Lowers the priority of this thread, and of the threads that it starts later. Other systems than
/// Linux have one priority for a process, which stays as it is.
pub fn lower() {
    #[cfg(target_os = "linux")]
    if let Err(error) = rustix::process::setpriority_process(None, NICENESS) {
        tracing::debug!(%error, "priority of the thread not changed");
    }
}

//! Waits for a replica that may be stuck.

use std::pin::pin;
use std::time::Duration;

/// Parts of a wait.
const PARTS: u32 = 10;

/// Returns the future's output, or None if it takes longer than `limit`. While this process does
/// not run, for example because the machine is overloaded, at most a tenth of the limit passes.
pub(super) async fn in_time<T>(limit: Duration, future: impl Future<Output = T>) -> Option<T> {
    let mut future = pin!(future);
    for _ in 0..PARTS {
        if let Ok(output) = tokio::time::timeout(limit / PARTS, future.as_mut()).await {
            return Some(output);
        }
    }
    None
}

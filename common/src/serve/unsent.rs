//! The bytes of an answer that are not sent yet.
//!
//! HTTP/2 takes up to 400 KiB of a body that its client does not read. The body's end would end the call,
//! and nothing would count those bytes. So the end waits until they are sent.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll, Waker};

use parking_lot::Mutex;
use tonic::codegen::Bytes;

/// The most unsent bytes of an answer that may end. Small answers end without a further wake-up.
const MAX_LEFT: usize = 16 << 10;

/// The unsent bytes of one answer.
#[derive(Debug, Default)]
pub(super) struct Unsent {
    bytes: AtomicUsize,
    /// Waits for the end.
    waker: Mutex<Option<Waker>>,
}

impl Unsent {
    /// Returns the number of unsent bytes.
    pub(super) fn bytes(&self) -> usize {
        self.bytes.load(Ordering::Acquire)
    }

    /// Returns the same data, counted until the transport drops it: it then is sent, or the stream is
    /// closed.
    pub(super) fn track(self: &Arc<Self>, data: Bytes) -> Bytes {
        self.bytes.fetch_add(data.len(), Ordering::AcqRel);
        Bytes::from_owner(Part { data, unsent: Arc::clone(self) })
    }

    /// Waits until the answer may end.
    pub(super) fn poll_sent(&self, context: &Context<'_>) -> Poll<()> {
        if self.bytes() <= MAX_LEFT {
            return Poll::Ready(());
        }
        *self.waker.lock() = Some(context.waker().clone());
        // The last part may have been sent in between.
        if self.bytes() <= MAX_LEFT { Poll::Ready(()) } else { Poll::Pending }
    }
}

/// A part of an answer, as the transport holds it.
struct Part {
    data: Bytes,
    unsent: Arc<Unsent>,
}

impl AsRef<[u8]> for Part {
    fn as_ref(&self) -> &[u8] {
        &self.data
    }
}

impl Drop for Part {
    fn drop(&mut self) {
        let before = self.unsent.bytes.fetch_sub(self.data.len(), Ordering::AcqRel);
        if before - self.data.len() <= MAX_LEFT
            && let Some(waker) = self.unsent.waker.lock().take()
        {
            waker.wake();
        }
    }
}

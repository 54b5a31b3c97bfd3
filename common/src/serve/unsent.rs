//! The unsent bytes of an answer, and the permits that its call holds until they are sent.
//!
//! HTTP/2 takes up to 400 KiB of a body that its client does not read, and lets the body end. So a call's
//! permits are held here: each part of the answer that the transport holds keeps them.

use std::any::Any;
use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use http::Request;
use parking_lot::Mutex;
use tonic::body::Body;
use tonic::codegen::Bytes;

/// The answers of one connection with unsent bytes, and when each was last read.
#[derive(Debug, Default)]
pub(super) struct UnreadAnswers(Mutex<HashMap<u64, Instant>>);

impl UnreadAnswers {
    /// Returns true if an answer was not read for longer than this.
    pub(super) fn has_older(&self, age: Duration) -> bool {
        self.0.lock().values().any(|read| read.elapsed() > age)
    }
}

/// The unsent bytes of one answer.
#[derive(Debug)]
pub(super) struct Unsent {
    id: u64,
    /// None: not of a connection.
    connection: Option<Arc<UnreadAnswers>>,
    bytes: Mutex<usize>,
    held: Mutex<Vec<Box<dyn Any + Send>>>,
}

impl Unsent {
    pub(super) fn new(connection: Option<Arc<UnreadAnswers>>) -> Self {
        static IDS: AtomicU64 = AtomicU64::new(0);
        let id = IDS.fetch_add(1, Ordering::Relaxed);
        Self { id, connection, bytes: Mutex::default(), held: Mutex::default() }
    }

    /// Attaches this to the request of the answer. The request does not keep it.
    pub(super) fn attach(self: &Arc<Self>, request: &mut Request<Body>) {
        request.extensions_mut().insert(Arc::downgrade(self));
    }

    /// Returns the unsent bytes of a request's answer.
    pub(super) fn of(request: &Request<Body>) -> Option<Arc<Self>> {
        request.extensions().get::<Weak<Self>>()?.upgrade()
    }

    /// Holds a permit until the call of a request has ended and its answer is sent.
    pub(super) fn hold(request: &Request<Body>, permit: impl Any + Send) {
        if let Some(unsent) = Self::of(request) {
            unsent.held.lock().push(Box::new(permit));
        }
    }

    /// Returns the number of unsent bytes.
    pub(super) fn bytes(&self) -> usize {
        *self.bytes.lock()
    }

    /// Returns the same data, unsent until the transport drops it: it then is sent, or the stream is closed.
    pub(super) fn track(self: &Arc<Self>, data: Bytes) -> Bytes {
        let bytes = &mut *self.bytes.lock();
        *bytes += data.len();
        if let Some(UnreadAnswers(unread)) = self.connection.as_deref() {
            // More of the answer does not mean that it is read.
            unread.lock().entry(self.id).or_insert_with(Instant::now);
        }
        Bytes::from_owner(Part { data, unsent: Arc::clone(self) })
    }

    fn drop_part(&self, length: usize) {
        let bytes = &mut *self.bytes.lock();
        *bytes -= length;
        let Some(UnreadAnswers(unread)) = self.connection.as_deref() else { return };
        if *bytes == 0 {
            unread.lock().remove(&self.id);
        } else {
            unread.lock().insert(self.id, Instant::now());
        }
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
        self.unsent.drop_part(self.data.len());
    }
}

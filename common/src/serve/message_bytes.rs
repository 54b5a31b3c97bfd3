//! The limit of the bytes of all request messages in progress.

use std::sync::Arc;

use http::{Request, Response};
use parking_lot::Mutex;
use tonic::body::Body;

use super::caller::Caller;
use crate::call_layer::{BodyGuard, CallWork, on_body_end};
use crate::permits::{Exhausted, Permit, Permits};
use crate::status::{Failure, Reason};

/// The bytes of a call that are not counted. Conversations mostly have fewer.
const UNCOUNTED_BYTES: usize = 64 << 10;
/// The bytes that an element counts for, in addition to those on the wire.
const ELEMENT_BYTES: usize = 256;

/// The permits for bytes.
#[derive(Debug, Clone)]
pub(super) struct MessageBytes(Permits);

impl MessageBytes {
    /// Creates permits for `limit` bytes. One caller can hold three quarters of them, and at least
    /// those of one message.
    pub(super) fn new(limit: usize, max_message_bytes: usize) -> Self {
        let permits = Permits::new(limit.max(max_message_bytes));
        let of_caller = permits.limit_per_caller().max(max_message_bytes);
        Self(Permits::with_caller_limit(permits.limit(), of_caller))
    }

    /// Returns the bytes of a new call, and attaches them to its request.
    pub(super) fn start(&self, request: &mut Request<Body>) -> CallBytes {
        let caller = request.extensions().get::<Caller>().cloned().unwrap_or_default().id;
        let held = Held { permits: self.0.clone(), caller, bytes: 0, permit: None };
        let bytes = CallBytes(Arc::new(Mutex::new(held)));
        request.extensions_mut().insert(bytes.clone());
        bytes
    }
}

/// The bytes of one call's request message, held until its response ends. Clones share them.
#[derive(Debug, Clone)]
pub(super) struct CallBytes(Arc<Mutex<Held>>);

#[derive(Debug)]
struct Held {
    permits: Permits,
    caller: Arc<str>,
    bytes: usize,
    permit: Option<Permit>,
}

impl CallBytes {
    /// Adds bytes that have arrived, and elements among them.
    ///
    /// # Errors
    /// All calls together, or those of the caller, exceed the limit.
    pub(super) fn add(&self, bytes: usize, elements: usize) -> Result<(), Failure> {
        let held = &mut *self.0.lock();
        let before = held.bytes;
        held.bytes += bytes + elements * ELEMENT_BYTES;
        let counted = held.bytes.max(UNCOUNTED_BYTES) - before.max(UNCOUNTED_BYTES);
        if counted == 0 {
            return Ok(());
        }
        let added = match &mut held.permit {
            Some(permit) => permit.add(counted),
            none => held.permits.acquire_many(&held.caller, counted).map(|permit| *none = Some(permit)),
        };
        added.map_err(|exhausted| refusal(exhausted, &held.permits))
    }
}

impl BodyGuard for CallBytes {}

impl CallWork for CallBytes {
    async fn run<E, F>(self, call: impl FnOnce() -> F + Send) -> Result<Response<Body>, E>
    where
        F: Future<Output = Result<Response<Body>, E>> + Send,
    {
        Ok(on_body_end(call().await?, self))
    }
}

fn refusal(exhausted: Exhausted, permits: &Permits) -> Failure {
    let message = match exhausted {
        Exhausted::All => format!(
            "the request messages in progress have reached their limit of {} bytes (--max-total-message-bytes)",
            permits.limit()
        ),
        Exhausted::OfCaller => format!(
            "the caller's request messages in progress have reached their limit of {} bytes, three quarters of \
             --max-total-message-bytes",
            permits.limit_per_caller()
        ),
    };
    Failure::new(Reason::TotalMessageBytes, message)
}

//! The limit of the bytes of all messages in progress.

use std::sync::Arc;

use http::Request;
use parking_lot::Mutex;
use tonic::body::Body;

use super::caller::Caller;
use super::unsent::Unsent;
use crate::admission::{Exhausted, Permit, Permits};
use crate::status::{Failure, Reason};

/// The bytes of a call that are not counted. Conversations usually have fewer.
const UNCOUNTED_BYTES: usize = 64 << 10;

/// The permits for bytes.
#[derive(Debug, Clone)]
pub(super) struct MessageBytes(Permits);

impl MessageBytes {
    /// Creates permits for `limit` bytes. One caller can hold three quarters of them.
    pub(super) fn new(limit: usize) -> Self {
        Self(Permits::new(limit))
    }

    /// Returns the bytes of a new call, and attaches them to its request.
    pub(super) fn start(&self, request: &mut Request<Body>) -> CallBytes {
        let caller = request.extensions().get::<Caller>().cloned().unwrap_or_default().id;
        let held = Held { permits: self.0.clone(), caller, request: 0, answer: 0, permit: None };
        let bytes = CallBytes(Arc::new(Mutex::new(held)));
        request.extensions_mut().insert(bytes.clone());
        Unsent::hold(request, bytes.clone());
        bytes
    }
}

/// The bytes of one call's messages: of its request until the call ends, and of its answer until they are
/// sent. Clones share them.
#[derive(Debug, Clone)]
pub(super) struct CallBytes(Arc<Mutex<Held>>);

#[derive(Debug)]
struct Held {
    permits: Permits,
    caller: Arc<str>,
    request: usize,
    answer: usize,
    permit: Option<Permit>,
}

impl CallBytes {
    /// Adds bytes of the request, on the wire or in memory.
    ///
    /// # Errors
    /// All calls together, or those of the caller, exceed the limit.
    pub(super) fn add(&self, bytes: usize) -> Result<(), Failure> {
        let held = &mut *self.0.lock();
        held.request += bytes;
        held.count()
    }

    /// Replaces the number of the answer's bytes that are not sent, before its first part.
    ///
    /// # Errors
    /// As for [`Self::add`].
    pub(super) fn start_answer(&self, bytes: usize) -> Result<(), Failure> {
        let held = &mut *self.0.lock();
        held.answer = bytes;
        held.count()
    }

    /// Replaces the number of the answer's bytes that are not sent. An answer that has begun is not refused.
    pub(super) fn set_answer(&self, bytes: usize) {
        let held = &mut *self.0.lock();
        held.answer = bytes;
        if held.count().is_err() {
            held.force();
        }
    }
}

impl Held {
    /// Takes or frees permits for the bytes beyond the uncounted ones.
    fn count(&mut self) -> Result<(), Failure> {
        let counted = (self.request + self.answer).saturating_sub(UNCOUNTED_BYTES);
        let before = self.permit.as_ref().map_or(0, Permit::count);
        let changed = match &mut self.permit {
            Some(permit) if counted < before => {
                permit.free(before - counted);
                Ok(())
            }
            Some(permit) => permit.add(counted - before),
            None if counted == 0 => Ok(()),
            none => self.permits.acquire_many(&self.caller, counted).map(|permit| *none = Some(permit)),
        };
        changed.map_err(|exhausted| refusal(exhausted, &self.permits))
    }

    /// Takes permits for the bytes beyond the uncounted ones, although there are too few.
    fn force(&mut self) {
        let counted = (self.request + self.answer).saturating_sub(UNCOUNTED_BYTES);
        let permit = self.permit.get_or_insert_with(|| self.permits.none(&self.caller));
        permit.force(counted.saturating_sub(permit.count()));
    }
}

fn refusal(exhausted: Exhausted, permits: &Permits) -> Failure {
    let message = match exhausted {
        Exhausted::All => format!(
            "the messages in progress have reached their limit of {} bytes, four times --max-message-bytes",
            permits.limit()
        ),
        Exhausted::OfCaller => format!(
            "the caller's messages in progress have reached their limit of {} bytes, three times --max-message-bytes",
            permits.limit_per_caller()
        ),
    };
    Failure::new(Reason::TotalMessageBytes, message)
}

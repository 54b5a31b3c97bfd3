//! The queue of requests before an engine: its limit, and the share of each caller.

use std::sync::Arc;

use tandem_common::admission::{Exhausted, Permit, Permits};

use super::metrics::RequestMetrics;
use crate::error::RequestError;
use crate::lifecycle::Lifecycle;

/// The queue. Clones share it.
#[derive(Debug, Clone)]
pub struct Queue {
    permits: Permits,
    lifecycle: Lifecycle,
    /// The capacity of a request's event channel, without the slots for the last events.
    event_capacity: usize,
    model: Arc<str>,
    metrics: Arc<RequestMetrics>,
}

/// A slot in the queue. Dropping it frees the slot.
#[derive(Debug)]
pub struct QueueSlot {
    queue: Queue,
    _permit: Permit,
}

impl Queue {
    /// Creates a queue with `limit` slots, of which a quarter is kept back from any one caller.
    #[must_use]
    pub fn new(limit: usize, lifecycle: Lifecycle, event_capacity: usize, model: &str) -> Self {
        let metrics = Arc::new(RequestMetrics::new(model));
        Self { permits: Permits::new(limit), lifecycle, event_capacity, model: model.into(), metrics }
    }

    /// Takes a slot in the queue.
    ///
    /// # Errors
    /// The queue is full, the caller has as many requests in it as one may have, or requests are not
    /// accepted.
    pub fn reserve(&self, caller: &Arc<str>) -> Result<QueueSlot, RequestError> {
        self.lifecycle.check_serving()?;
        match self.permits.acquire(caller) {
            Ok(permit) => Ok(QueueSlot { queue: self.clone(), _permit: permit }),
            Err(Exhausted::All) => Err(RequestError::QueueFull { limit: self.permits.limit() }),
            Err(Exhausted::OfCaller) => Err(RequestError::QueueShareFull { limit: self.permits.limit_per_caller() }),
        }
    }

    /// Returns the number of requests in the queue.
    #[must_use]
    pub fn len(&self) -> usize {
        self.permits.held()
    }

    /// Returns true if no request is in the queue.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns the lifecycle, which decides whether requests are accepted.
    #[must_use]
    pub fn lifecycle(&self) -> &Lifecycle {
        &self.lifecycle
    }
}

impl QueueSlot {
    pub(super) fn metrics(&self) -> &Arc<RequestMetrics> {
        &self.queue.metrics
    }

    pub(super) fn event_capacity(&self) -> usize {
        self.queue.event_capacity
    }

    pub(super) fn model(&self) -> &str {
        &self.queue.model
    }

    pub(super) fn queued(&self) -> usize {
        self.queue.len()
    }
}

//! The state that the engine's thread and its handles share.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use parking_lot::Mutex;

use super::config::{Config, EngineLimits};
use super::metrics::{EngineMetrics, Gauges};
use crate::error::Error;
use crate::lifecycle::Lifecycle;
use crate::request::ServedModel;

/// The state that the engine's thread and its handles share.
#[derive(Debug)]
pub(super) struct Shared {
    pub(super) model: ServedModel,
    pub(super) limits: EngineLimits,
    /// The capacity of a request's event channel, without the slots for the last events.
    pub(super) event_capacity: usize,
    pub(super) lifecycle: Lifecycle,
    pub(super) metrics: Arc<EngineMetrics>,
    /// Slots of the queue in use.
    queued: AtomicUsize,
    /// The last report of the thread. It has no `queued`.
    activity: Mutex<Gauges>,
}

/// A slot in the queue. Dropping it frees the slot.
#[derive(Debug)]
pub struct QueueSlot(Arc<Shared>);

impl QueueSlot {
    /// Returns the metrics of the engine whose queue this is.
    pub(super) fn metrics(&self) -> &Arc<EngineMetrics> {
        &self.0.metrics
    }
}

impl Drop for QueueSlot {
    fn drop(&mut self) {
        self.0.queued.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Shared {
    pub(super) fn new(model: ServedModel, config: &Config, lifecycle: Lifecycle) -> Self {
        Self {
            metrics: Arc::new(EngineMetrics::new(&model.id)),
            model,
            limits: config.limits(),
            event_capacity: config.event_capacity(),
            lifecycle,
            queued: AtomicUsize::new(0),
            activity: Mutex::default(),
        }
    }

    /// Returns the current gauges.
    pub(super) fn gauges(&self) -> Gauges {
        let activity = self.activity.lock();
        Gauges { queued: self.queued.load(Ordering::Relaxed), ..*activity }
    }

    /// Replaces the thread's part of the gauges.
    pub(super) fn report(&self, activity: Gauges) {
        *self.activity.lock() = activity;
    }

    /// Takes a slot in the queue.
    ///
    /// # Errors
    /// The queue is full, or requests are not accepted.
    pub(super) fn reserve(self: &Arc<Self>) -> Result<QueueSlot, Error> {
        self.lifecycle.check_serving()?;
        let limit = self.limits.max_queue;
        let take = |queued| (queued < limit).then_some(queued + 1);
        match self.queued.fetch_update(Ordering::Relaxed, Ordering::Relaxed, take) {
            Ok(_) => Ok(QueueSlot(Arc::clone(self))),
            Err(_) => Err(Error::QueueFull { limit }),
        }
    }
}

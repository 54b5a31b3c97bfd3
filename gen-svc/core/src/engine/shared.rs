//! The state that the engine's thread and its handles share.

use std::sync::Arc;

use parking_lot::Mutex;
use tandem_common::permits::{Exhausted, Permit, Permits};

use super::config::{Config, EngineLimits};
use super::metrics::{EngineMetrics, Gauges};
use super::step_clock::StepClock;
use crate::cache::Usage;
use crate::error::RequestError;
use crate::lifecycle::Lifecycle;
use crate::models::{DeviceMemory, DevicePart};
use crate::request::ServedModel;

/// The state that the engine's thread and its handles share.
#[derive(Debug)]
pub(super) struct Shared {
    pub(super) model: ServedModel,
    /// The parts of the model on devices.
    pub(super) parts: Vec<DevicePart>,
    pub(super) limits: EngineLimits,
    /// The capacity of a request's event channel, without the slots for the last events.
    pub(super) event_capacity: usize,
    pub(super) lifecycle: Lifecycle,
    pub(super) metrics: Arc<EngineMetrics>,
    pub(super) step_clock: StepClock,
    /// The slots of the queue.
    queue: Permits,
    /// The last report of the thread. It has no `queued`.
    activity: Mutex<Gauges>,
}

/// A GPU, its memory, and its part of the model.
#[derive(Debug, Clone)]
pub struct GpuState {
    /// The device, such as `cuda:0`.
    pub device: String,
    /// The name. Empty if the driver does not report it.
    pub name: String,
    /// The memory.
    pub memory: DeviceMemory,
    /// The number of layers.
    pub layers: usize,
    /// The bytes of the layers' part of the KV cache.
    pub kv_bytes: u64,
    /// The blocks of the KV cache. Every GPU has a part of each.
    pub kv_blocks: Usage,
}

/// A slot in the queue. Dropping it frees the slot.
#[derive(Debug)]
pub struct QueueSlot {
    shared: Arc<Shared>,
    _permit: Permit,
}

impl QueueSlot {
    /// Returns the metrics of the engine whose queue this is.
    pub(super) fn metrics(&self) -> &Arc<EngineMetrics> {
        &self.shared.metrics
    }
}

impl Shared {
    pub(super) fn new(model: ServedModel, parts: Vec<DevicePart>, config: &Config, lifecycle: Lifecycle) -> Self {
        Self {
            metrics: Arc::new(EngineMetrics::new(&model.id)),
            model,
            parts,
            limits: config.limits(),
            event_capacity: config.event_capacity(),
            lifecycle,
            step_clock: StepClock::default(),
            queue: Permits::new(config.limits().max_queue),
            activity: Mutex::default(),
        }
    }

    /// Returns the current gauges.
    pub(super) fn gauges(&self) -> Gauges {
        let activity = self.activity.lock();
        Gauges { queued: self.queue.held(), ..*activity }
    }

    /// Replaces the thread's part of the gauges.
    pub(super) fn report(&self, activity: Gauges) {
        *self.activity.lock() = activity;
    }

    /// Takes a slot in the queue.
    ///
    /// # Errors
    /// The queue is full, the caller has as many requests in it as one may have, or requests are not
    /// accepted.
    pub(super) fn reserve(self: &Arc<Self>, caller: &Arc<str>) -> Result<QueueSlot, RequestError> {
        self.lifecycle.check_serving()?;
        match self.queue.acquire(caller) {
            Ok(permit) => Ok(QueueSlot { shared: Arc::clone(self), _permit: permit }),
            Err(Exhausted::All) => Err(RequestError::QueueFull { limit: self.queue.limit() }),
            Err(Exhausted::OfCaller) => Err(RequestError::QueueShareFull { limit: self.queue.limit_per_caller() }),
        }
    }
}

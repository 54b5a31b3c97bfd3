//! The state that the engine's thread and its handles share.

use parking_lot::Mutex;

use super::config::EngineLimits;
use super::metrics::Gauges;
use super::step_clock::StepClock;
use crate::cache::Usage;
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
    pub(super) lifecycle: Lifecycle,
    pub(super) step_clock: StepClock,
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
    pub memory: DeviceMemory,
    /// The number of layers.
    pub layers: usize,
    /// The bytes of the layers' part of the KV cache.
    pub kv_bytes: u64,
    /// The blocks of the KV cache. Every GPU has a part of each.
    pub kv_blocks: Usage,
}

impl Shared {
    pub(super) fn new(model: ServedModel, parts: Vec<DevicePart>, limits: EngineLimits, lifecycle: Lifecycle) -> Self {
        Self { model, parts, limits, lifecycle, step_clock: StepClock::default(), activity: Mutex::default() }
    }

    /// Returns the thread's last report.
    pub(super) fn activity(&self) -> Gauges {
        *self.activity.lock()
    }

    /// Replaces the thread's report.
    pub(super) fn report(&self, activity: Gauges) {
        *self.activity.lock() = activity;
    }
}

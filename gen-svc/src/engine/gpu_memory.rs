//! The memory of the configured GPUs.

use std::ops::Range;

use tch::Device;

use super::config::{Config, DeviceChoice};
use crate::device::{self, DeviceMemory};
use crate::error::{DeviceNeed, Error, KvNeed};
use crate::models::{Costs, Placement};

/// A server for a shorter context is of no use: a system prompt alone can be as long.
pub(super) const MIN_CONTEXT: usize = 256;

/// The memory of a GPU, and the share of it that may be used.
#[derive(Debug, Clone, PartialEq)]
pub struct GpuMemory {
    /// The configured device.
    pub device: String,
    /// The configured share.
    pub share: f64,
    /// The memory.
    pub memory: DeviceMemory,
}

impl GpuMemory {
    /// Returns the current memory of the configured GPUs. None for the CPU, or if CUDA does not report it.
    pub(super) fn all(config: &Config) -> Option<Vec<Self>> {
        let memory = |choice: &DeviceChoice| {
            let DeviceChoice::Cuda(index) = *choice else { return None };
            let memory = device::memory(Device::Cuda(index))?;
            Some(Self { device: choice.to_string(), share: config.gpu_memory, memory })
        };
        config.devices.devices().iter().map(memory).collect()
    }

    /// Returns the bytes that the KV cache may have on all GPUs together. A block has bytes on each of
    /// them, so that the GPU with the fewest blocks decides.
    #[must_use]
    pub fn kv_bytes(gpus: &[Self], block_bytes: &[u64]) -> u64 {
        let all: u64 = block_bytes.iter().sum();
        let bytes = |(gpu, &own): (&Self, &u64)| u128::from(gpu.left()) * u128::from(all) / u128::from(own.max(1));
        let least = gpus.iter().zip(block_bytes).map(bytes).min().unwrap_or_default();
        u64::try_from(least).unwrap_or(u64::MAX)
    }

    /// Fails if the weights of a part do not fit on its GPU beside its part of the KV cache. One GPU has all
    /// weights.
    ///
    /// # Errors
    /// [`Error::GpuMemory`] or [`Error::GpuMemories`].
    pub fn require_all(gpus: &[Self], costs: &Costs, placement: &Placement, kv: KvDemand) -> Result<(), Error> {
        let parts = placement.parts().iter();
        let needs = parts.map(|part| (costs.weights_of(&part.layers), kv.part(costs, &part.layers)));
        let needs: Vec<DeviceNeed> = gpus.iter().zip(needs).map(|(gpu, (needed, kv))| gpu.need(needed, kv)).collect();
        if needs.iter().all(DeviceNeed::fits) {
            return Ok(());
        }
        let share = gpus.first().map_or(1.0, |gpu| gpu.share);
        match <[DeviceNeed; 1]>::try_from(needs) {
            Ok([DeviceNeed { device, needed, kv, available, total }]) => {
                Err(Error::GpuMemory { device, needed, kv, available, share, total })
            }
            Err(needs) => Err(Error::GpuMemories { needs, share }),
        }
    }

    /// Fails if a KV cache of `bytes` does not fit. A block has bytes on each GPU.
    ///
    /// # Errors
    /// [`Error::GpuKvMemory`].
    pub fn require_kv(gpus: &[Self], block_bytes: &[u64], bytes: u64) -> Result<(), Error> {
        let all: u64 = block_bytes.iter().sum();
        for (gpu, &own) in gpus.iter().zip(block_bytes) {
            let (needed, available) = (share_of(bytes, own, all), gpu.left());
            if needed > available {
                let (device, share, total) = (gpu.device.clone(), gpu.share, gpu.memory.total);
                return Err(Error::GpuKvMemory { device, needed, available, share, total });
            }
        }
        Ok(())
    }

    fn need(&self, needed: u64, kv: KvNeed) -> DeviceNeed {
        DeviceNeed { device: self.device.clone(), needed, kv, available: self.left(), total: self.memory.total }
    }

    /// Returns the bytes of the share that no process uses.
    #[must_use]
    pub fn left(&self) -> u64 {
        let DeviceMemory { free, total } = self.memory;
        ((total as f64 * self.share) as u64).saturating_sub(total - free)
    }
}

/// The KV cache that must fit beside the weights, on all devices together.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum KvDemand {
    /// Room for this many positions.
    Positions(usize),
    /// The configured bytes.
    Bytes(u64),
}

impl KvDemand {
    /// Returns the KV cache of a model with this context: the configured one, up to the size for all running
    /// outputs at full length, or the smallest one that is of use.
    #[must_use]
    pub fn of(config: &Config, context: usize, costs: &Costs) -> Self {
        let Some(configured) = config.kv_memory else { return Self::Positions(context.min(MIN_CONTEXT)) };
        let most = (context as u64).saturating_mul(config.limits().max_running as u64);
        Self::Bytes(configured.min(most.saturating_mul(costs.pairs_of(&(0..costs.layers.len())))))
    }

    /// Returns the part of these layers.
    fn part(self, costs: &Costs, layers: &Range<usize>) -> KvNeed {
        let own = costs.pairs_of(layers);
        match self {
            Self::Positions(positions) => KvNeed::Least(own.saturating_mul(positions as u64)),
            Self::Bytes(bytes) => KvNeed::Configured(share_of(bytes, own, costs.pairs_of(&(0..costs.layers.len())))),
        }
    }
}

/// Returns the part of `bytes` that `own` is of `all`.
fn share_of(bytes: u64, own: u64, all: u64) -> u64 {
    let part = u128::from(bytes) * u128::from(own) / u128::from(all.max(1));
    u64::try_from(part).unwrap_or(u64::MAX)
}

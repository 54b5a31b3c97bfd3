//! The memory of the configured GPUs.

use tch::Device;

use super::config::{Config, DeviceChoice};
use crate::device::{self, DeviceMemory};
use crate::error::{DeviceNeed, Error};
use crate::models::{Costs, Placement};

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

    /// Fails if the weights of a part do not fit on its GPU. One GPU has all weights.
    ///
    /// # Errors
    /// [`Error::GpuMemory`] or [`Error::GpuMemories`].
    pub fn require_all(gpus: &[Self], costs: &Costs, placement: &Placement) -> Result<(), Error> {
        let needed = placement.parts().iter().map(|part| costs.weights_of(&part.layers));
        let needs: Vec<(&Self, u64)> = gpus.iter().zip(needed).collect();
        match needs.as_slice() {
            [(gpu, needed)] => gpu.require(*needed),
            several if several.iter().all(|(gpu, needed)| gpu.require(*needed).is_ok()) => Ok(()),
            several => Err(Error::GpuMemories {
                needs: several.iter().map(|(gpu, needed)| gpu.need(*needed)).collect(),
                share: gpus.first().map_or(1.0, |gpu| gpu.share),
            }),
        }
    }

    fn need(&self, needed: u64) -> DeviceNeed {
        DeviceNeed { device: self.device.clone(), needed, available: self.left(), total: self.memory.total }
    }

    /// Returns the bytes of the share that no process uses.
    #[must_use]
    pub fn left(&self) -> u64 {
        let DeviceMemory { free, total } = self.memory;
        ((total as f64 * self.share) as u64).saturating_sub(total - free)
    }

    /// Fails if weights of `needed` bytes do not fit.
    ///
    /// # Errors
    /// [`Error::GpuMemory`].
    pub fn require(&self, needed: u64) -> Result<(), Error> {
        let (device, share, total, available) = (self.device.clone(), self.share, self.memory.total, self.left());
        if needed > available {
            return Err(Error::GpuMemory { device, needed, available, share, total });
        }
        Ok(())
    }
}

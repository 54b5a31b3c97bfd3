//! The memory of GPUs.

use super::config::DeviceChoice;
use crate::error::{DeviceNeed, KvNeed, LoadError, MemoryError};
use crate::models::{DeviceMemory, Gpu};

/// A server for a shorter context is of no use: a system prompt alone can be as long.
pub const MIN_CONTEXT: usize = 256;

/// The memory of a GPU, and the share of it that may be used.
#[derive(Debug, Clone, PartialEq)]
pub struct GpuMemory {
    /// The configured device.
    pub device: String,
    /// The configured share.
    pub share: f64,
    pub memory: DeviceMemory,
}

impl GpuMemory {
    /// Returns the current memory of GPUs. None if a device is no GPU, or its memory is unknown.
    pub fn all(share: f64, gpus: impl Iterator<Item = Option<Gpu>>) -> Option<Vec<Self>> {
        let memory = |gpu: Option<Gpu>| {
            let gpu = gpu?;
            Some(Self { device: DeviceChoice::Cuda(gpu.index).to_string(), share, memory: gpu.memory()? })
        };
        gpus.map(memory).collect::<Option<Vec<Self>>>().filter(|gpus| !gpus.is_empty())
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

    /// Fails if a KV cache of `bytes` does not fit. A block has bytes on each GPU.
    ///
    /// # Errors
    /// [`MemoryError::GpuKv`].
    pub fn require_kv(gpus: &[Self], block_bytes: &[u64], bytes: u64) -> Result<(), LoadError> {
        let all: u64 = block_bytes.iter().sum();
        for (gpu, &own) in gpus.iter().zip(block_bytes) {
            let (needed, available) = (share_of(bytes, own, all), gpu.left());
            if needed > available {
                let (device, share, total) = (gpu.device.clone(), gpu.share, gpu.memory.total);
                return Err(MemoryError::GpuKv { device, needed, available, share, total }.into());
            }
        }
        Ok(())
    }

    pub fn need(&self, needed: u64, kv: KvNeed) -> DeviceNeed {
        DeviceNeed { device: self.device.clone(), needed, kv, available: self.left(), total: self.memory.total }
    }

    /// Returns the bytes of the share that no process uses.
    #[must_use]
    pub fn left(&self) -> u64 {
        let DeviceMemory { free, total } = self.memory;
        ((total as f64 * self.share) as u64).saturating_sub(total - free)
    }
}

/// Returns the part of `bytes` that `own` is of `all`.
pub fn share_of(bytes: u64, own: u64, all: u64) -> u64 {
    let part = u128::from(bytes) * u128::from(own) / u128::from(all.max(1));
    u64::try_from(part).unwrap_or(u64::MAX)
}

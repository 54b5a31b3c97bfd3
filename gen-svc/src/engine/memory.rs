//! The memory of the weights and of the KV cache.

use std::fs;

use super::config::{Config, DeviceChoice};
use crate::cache::BLOCK;
use crate::error::Error;
use crate::models::ModelShape;

/// By default the KV cache takes the free memory divided by this.
const DEFAULT_KV_DIVISOR: u64 = 4;
/// The default size of the KV cache on a GPU, whose free memory libtorch does not report.
const DEFAULT_GPU_KV_BYTES: u64 = 4 << 30;

/// Returns the number of blocks of the KV cache: as configured, or a share of the free memory. All
/// running outputs at full length are the upper limit.
///
/// # Errors
/// There is no room for one block.
pub(super) fn blocks(config: &Config, shape: &ModelShape) -> Result<u32, Error> {
    let most = (shape.context.div_ceil(BLOCK) * config.limits().max_running) as u64;
    let bytes = config.kv_memory.unwrap_or_else(|| match config.device {
        DeviceChoice::Cpu => free_bytes().map_or(DEFAULT_GPU_KV_BYTES, |free| free / DEFAULT_KV_DIVISOR),
        DeviceChoice::Cuda(_) => DEFAULT_GPU_KV_BYTES,
    });
    match (bytes / shape.block_bytes.max(1)).min(most).min(u64::from(u32::MAX)) {
        0 => Err(Error::KvMemory { bytes, least: shape.block_bytes }),
        blocks => Ok(blocks as u32),
    }
}

/// Fails if the weights take more bytes than the CPU's free memory. That of a GPU is unknown.
///
/// # Errors
/// [`Error::Memory`].
pub(super) fn require(needed: u64, device: DeviceChoice) -> Result<(), Error> {
    match free_bytes() {
        Some(available) if device == DeviceChoice::Cpu && needed > available => {
            Err(Error::Memory { needed, available })
        }
        _ => Ok(()),
    }
}

/// Returns the bytes that this process can still take, by the system and by its control group.
fn free_bytes() -> Option<u64> {
    let system = fs::read_to_string("/proc/meminfo").ok()?;
    let line = system.lines().find_map(|line| line.strip_prefix("MemAvailable:"))?;
    let system = line.trim().strip_suffix("kB")?.trim().parse::<u64>().ok()? * 1024;
    Some(control_group_bytes().map_or(system, |group| group.min(system)))
}

/// Returns the bytes that the control group leaves, if it has a limit.
fn control_group_bytes() -> Option<u64> {
    let read = |name: &str| fs::read_to_string(format!("/sys/fs/cgroup/{name}")).ok()?.trim().parse::<u64>().ok();
    Some(read("memory.max")?.saturating_sub(read("memory.current")?))
}

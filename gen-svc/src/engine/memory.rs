//! How much memory keys and values may take.

use std::fs;

use super::{Config, DeviceChoice};
use crate::cache::BLOCK;
use crate::error::Error;
use crate::models::ModelShape;

/// The share of the free memory that is taken where nothing is said.
const SHARE: u64 = 4;
/// What is taken on a GPU where nothing is said: libtorch does not tell what is free there.
const ON_A_GPU: u64 = 4 << 30;

/// How many blocks there will be: as much as is configured, or a share of the free memory, but no more than all running outputs at
/// their longest can use.
///
/// # Errors
/// It is not one block.
pub(super) fn blocks(config: &Config, shape: &ModelShape) -> Result<u32, Error> {
    let most = (shape.context.div_ceil(BLOCK) * config.max_running.max(1)) as u64;
    let bytes = config.kv_memory.unwrap_or_else(|| match config.device {
        DeviceChoice::Cpu => free().map_or(ON_A_GPU, |free| free / SHARE),
        DeviceChoice::Cuda(_) => ON_A_GPU,
    });
    match (bytes / shape.block_bytes.max(1)).min(most).min(u64::from(u32::MAX)) {
        0 => Err(Error::KvMemory { bytes, least: shape.block_bytes }),
        blocks => Ok(blocks as u32),
    }
}

/// Refuses weights that would take more than there is. What there is on a GPU is not known.
///
/// # Errors
/// They would.
pub(super) fn require(needed: u64, device: DeviceChoice) -> Result<(), Error> {
    match free() {
        Some(available) if device == DeviceChoice::Cpu && needed > available => {
            Err(Error::Memory { needed, available })
        }
        _ => Ok(()),
    }
}

/// Bytes that this process could still take, by the system and by its control group.
fn free() -> Option<u64> {
    let system = fs::read_to_string("/proc/meminfo").ok()?;
    let line = system.lines().find_map(|line| line.strip_prefix("MemAvailable:"))?;
    let system = line.trim().strip_suffix("kB")?.trim().parse::<u64>().ok()? * 1024;
    Some(control_group().map_or(system, |group| group.min(system)))
}

/// What the control group leaves, where it limits.
fn control_group() -> Option<u64> {
    let read = |name: &str| fs::read_to_string(format!("/sys/fs/cgroup/{name}")).ok()?.trim().parse::<u64>().ok();
    Some(read("memory.max")?.saturating_sub(read("memory.current")?))
}

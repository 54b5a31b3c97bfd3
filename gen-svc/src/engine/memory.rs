//! The memory of the weights and of the KV cache.

use std::fs;
use std::path::Path;

use super::config::{Config, DeviceChoice};
use super::warm_up;
use crate::device::{self, DeviceMemory};
use crate::error::Error;
use crate::models::{Model, ModelShape};

/// By default the KV cache takes the free memory divided by this.
const DEFAULT_KV_DIVISOR: u64 = 4;
/// A server for a shorter context is of no use: a system prompt alone can be as long.
const MIN_CONTEXT: usize = 256;
/// The default size of the KV cache if the free memory is unknown.
const DEFAULT_KV_BYTES: u64 = 4 << 30;

/// Returns the number of blocks of the KV cache: as configured, or a share of the free memory. All
/// running outputs at full length are the upper limit.
///
/// # Errors
/// There is no room for one block.
pub(super) fn blocks(config: &Config, shape: &ModelShape) -> Result<u32, Error> {
    let most = (shape.context.div_ceil(shape.block) * config.limits().max_running) as u64;
    let bytes = kv_bytes(config);
    match (bytes / shape.block_bytes.max(1)).min(most).min(u64::from(u32::MAX)) {
        0 => Err(Error::KvMemory { bytes, least: least_blocks(shape) * shape.block_bytes }),
        blocks => Ok(blocks as u32),
    }
}

/// Returns the size of the KV cache in bytes: as configured, or a share of the free memory.
fn kv_bytes(config: &Config) -> u64 {
    config.kv_memory.unwrap_or_else(|| match config.device {
        DeviceChoice::Cpu => free_bytes().map_or(DEFAULT_KV_BYTES, |free| free / DEFAULT_KV_DIVISOR),
        DeviceChoice::Cuda(_) => GpuMemory::of(config).map_or(DEFAULT_KV_BYTES, |gpu| gpu.left()),
    })
}

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
    /// Returns the current memory of the configured GPU. None for the CPU, or if CUDA does not report it.
    fn of(config: &Config) -> Option<Self> {
        let DeviceChoice::Cuda(index) = config.device else { return None };
        let memory = device::memory(tch::Device::Cuda(index))?;
        Some(Self { device: config.device.to_string(), share: config.gpu_memory, memory })
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

/// Returns the number of blocks of the KV cache of a loaded model. On a GPU, this is what `--gpu-memory`
/// leaves after a step of the largest shapes, unless a size is configured.
///
/// # Errors
/// The step or a usable context does not fit.
pub(super) fn divide(config: &Config, model: &mut dyn Model) -> Result<u32, Error> {
    let shape = model.shape();
    if config.kv_memory.is_none() && GpuMemory::of(config).is_some() {
        warm_up::run(model, config.limits())?;
        require_context(config, &shape)?;
        log(config, blocks(config, &shape)?, &shape);
    }
    blocks(config, &shape)
}

fn log(config: &Config, blocks: u32, shape: &ModelShape) {
    let Some(GpuMemory { device, share, memory: DeviceMemory { free, total } }) = GpuMemory::of(config) else { return };
    let kv_mib = (u64::from(blocks) * shape.block_bytes) >> 20;
    tracing::info!(device, share, total_mib = total >> 20, free_mib = free >> 20, kv_mib, "GPU memory divided");
}

/// Returns the blocks for [`MIN_CONTEXT`] tokens. A model with a smaller context needs as many blocks
/// as that at most.
fn least_blocks(shape: &ModelShape) -> u64 {
    shape.context.min(MIN_CONTEXT).div_ceil(shape.block) as u64
}

/// Fails if the KV cache has less room than [`MIN_CONTEXT`] tokens of one output need.
///
/// # Errors
/// [`Error::KvMemory`].
pub(super) fn require_context(config: &Config, shape: &ModelShape) -> Result<(), Error> {
    let least = least_blocks(shape);
    if u64::from(blocks(config, shape)?) < least {
        return Err(Error::KvMemory { bytes: kv_bytes(config), least: least * shape.block_bytes });
    }
    Ok(())
}

/// Fails if the weights take more bytes than are free, or on a GPU than its share has left. Unknown
/// memory suffices.
///
/// # Errors
/// [`Error::Memory`] or [`Error::GpuMemory`].
pub(super) fn require(needed: u64, config: &Config) -> Result<(), Error> {
    match config.device {
        DeviceChoice::Cuda(_) => GpuMemory::of(config).map_or(Ok(()), |gpu| gpu.require(needed)),
        DeviceChoice::Cpu => match free_bytes() {
            Some(available) if needed > available => Err(Error::Memory { needed, available }),
            _ => Ok(()),
        },
    }
}

/// Returns the bytes that this process can still take, by the system and by its control group.
fn free_bytes() -> Option<u64> {
    let system = fs::read_to_string("/proc/meminfo").ok()?;
    let line = system.lines().find_map(|line| line.strip_prefix("MemAvailable:"))?;
    let system = line.trim().strip_suffix("kB")?.trim().parse::<u64>().ok()? * 1024;
    Some(control_group_bytes().map_or(system, |group| group.min(system)))
}

/// Returns the bytes that the control groups leave, if one has a limit.
fn control_group_bytes() -> Option<u64> {
    let groups = fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
    left_in_control_groups(Path::new("/sys/fs/cgroup"), &groups)
}

/// Returns the least memory that a control group leaves, in bytes. `root` is where control groups are
/// mounted, and `groups` has the lines of `/proc/self/cgroup`: `0::PATH` for version 2, and
/// `ID:CONTROLLERS:PATH` for version 1. Inside a container the group itself may be mounted at the
/// root, whatever its path, so all its ancestors count too.
pub fn left_in_control_groups(root: &Path, groups: &str) -> Option<u64> {
    let left = groups.lines().filter_map(|line| {
        let mut parts = line.splitn(3, ':');
        let (_, controllers, path) = (parts.next()?, parts.next()?, parts.next()?);
        let (root, limit, usage) = match controllers {
            "" => (root.to_owned(), "memory.max", "memory.current"),
            names if names.split(',').any(|name| name == "memory") => {
                (root.join("memory"), "memory.limit_in_bytes", "memory.usage_in_bytes")
            }
            _ => return None,
        };
        let folder = root.join(path.trim_start_matches('/'));
        let groups = folder.ancestors().take_while(|folder| folder.starts_with(&root));
        groups.filter_map(|group| Some(number(&group.join(limit))?.saturating_sub(used(group, usage)))).min()
    });
    left.min()
}

/// Returns the bytes that a group uses, without the pages of files that the system can drop.
fn used(group: &Path, usage: &str) -> u64 {
    let stat = fs::read_to_string(group.join("memory.stat")).unwrap_or_default();
    // Version 1 names the sum over the group's children with the prefix `total_`.
    let value = |name: &str| stat.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' ')?.parse().ok());
    let droppable: u64 = value("total_inactive_file").or_else(|| value("inactive_file")).unwrap_or_default();
    number(&group.join(usage)).unwrap_or_default().saturating_sub(droppable)
}

/// Reads a number. The text `max` of a group without a limit is none.
fn number(file: &Path) -> Option<u64> {
    fs::read_to_string(file).ok()?.trim().parse().ok()
}

//! The memory of the weights and of the KV cache.

use std::fs;
use std::path::Path;

use super::config::{Config, DeviceChoice};
use crate::error::Error;
use crate::models::ModelShape;

/// By default the KV cache takes the free memory divided by this.
const DEFAULT_KV_DIVISOR: u64 = 4;
/// A server for a shorter context is of no use: a system prompt alone can be as long.
const MIN_CONTEXT: usize = 256;
/// The default size of the KV cache on a GPU, whose free memory libtorch does not report.
const DEFAULT_GPU_KV_BYTES: u64 = 4 << 30;

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
        DeviceChoice::Cpu => free_bytes().map_or(DEFAULT_GPU_KV_BYTES, |free| free / DEFAULT_KV_DIVISOR),
        DeviceChoice::Cuda(_) => DEFAULT_GPU_KV_BYTES,
    })
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

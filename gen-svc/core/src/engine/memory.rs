//! The memory of the weights and of the KV cache.

use std::fs;
use std::path::Path;

use super::config::Config;
use super::gpu_memory::{GpuMemory, MIN_CONTEXT};
use super::warm_up::{self, LargestImage};
use crate::cache::CacheSize;
use crate::error::{LoadError, MemoryError};
use crate::media::Vision;
use crate::models::{Backend, DeviceMemory, ModelShape, Tower};

/// By default the KV cache takes the free memory divided by this.
const DEFAULT_KV_DIVISOR: u64 = 4;
/// The least slots of states: one from which a sequence starts, and its own.
const LEAST_STATES: u64 = 2;
/// The default size of the KV cache if the free memory is unknown.
const DEFAULT_KV_BYTES: u64 = 4 << 30;

/// A tower, and the preparation of its images.
type TowerOf<'a> = (&'a mut dyn Tower, &'a Vision);

/// Returns the current memory of the GPUs that compute, if GPUs do.
type Measure<'a> = &'a dyn Fn() -> Option<Vec<GpuMemory>>;

/// Returns the size of the caches: as configured, or a share of the free memory. All running outputs
/// at full length are the upper limit.
///
/// # Errors
/// There is no room for one block, and two states in models that have such.
pub fn cache_size(config: &Config, backend: &dyn Backend) -> Result<CacheSize, LoadError> {
    size_on(config, backend, measured(config, backend))
}

fn size_on(config: &Config, backend: &dyn Backend, gpus: Option<Vec<GpuMemory>>) -> Result<CacheSize, LoadError> {
    let shape = backend.shape();
    let most = (shape.context.div_ceil(shape.block) * config.limits().max_running) as u64;
    let bytes = kv_bytes(config, backend, gpus);
    divided(&shape, bytes, most).ok_or_else(|| MemoryError::Kv { bytes, least: least_bytes(&shape) }.into())
}

/// Divides bytes among blocks, at most `most`, and states. Half of the bytes are for states, but the least blocks come
/// first, and there is at most one state per block. `None`: there is no room for the least states and a block.
fn divided(shape: &ModelShape, bytes: u64, most: u64) -> Option<CacheSize> {
    let most = most.min(u64::from(u32::MAX));
    let least = least_blocks(shape) * shape.block_bytes;
    let of_states = (bytes / 2).min(bytes.saturating_sub(least)).checked_div(shape.state_bytes);
    let states = of_states.map_or(0, |states| states.clamp(LEAST_STATES, most.max(LEAST_STATES)));
    let left = bytes.checked_sub(states.saturating_mul(shape.state_bytes))?;
    let blocks = (left / shape.block_bytes.max(1)).min(most);
    let states = states.min(blocks.max(LEAST_STATES));
    (blocks > 0).then_some(CacheSize { blocks: blocks as u32, states: states as u32 })
}

/// Returns the size of the KV cache in bytes, on all devices: as configured, or a share of the free
/// memory.
fn kv_bytes(config: &Config, backend: &dyn Backend, gpus: Option<Vec<GpuMemory>>) -> u64 {
    config.kv_memory.unwrap_or_else(|| match gpus {
        Some(gpus) => GpuMemory::kv_bytes(&gpus, &block_bytes(backend)),
        None if config.devices.is_cpu() => free_bytes().map_or(DEFAULT_KV_BYTES, |free| free / DEFAULT_KV_DIVISOR),
        None => DEFAULT_KV_BYTES,
    })
}

/// Returns the current memory of the GPUs of a backend.
fn measured(config: &Config, backend: &dyn Backend) -> Option<Vec<GpuMemory>> {
    GpuMemory::all(config.gpu_memory, backend.device_parts().into_iter().map(|part| part.gpu))
}

/// Returns the bytes of a block on each device.
fn block_bytes(backend: &dyn Backend) -> Vec<u64> {
    backend.device_parts().iter().map(|part| part.block_bytes).collect()
}

/// Returns the size of the caches of a loaded model, with a tower for its images. On a GPU,
/// this is the part of its share that is left after an image and a step of the largest shapes, unless a size is
/// configured. The configured size must fit too.
///
/// # Errors
/// The image, the step, the configured size or a usable context does not fit.
pub(super) fn divide(
    config: &Config,
    backend: &mut dyn Backend,
    tower: Option<TowerOf<'_>>,
) -> Result<CacheSize, LoadError> {
    let parts = backend.device_parts();
    divide_measured(config, backend, tower, &|| {
        GpuMemory::all(config.gpu_memory, parts.iter().map(|part| part.gpu.clone()))
    })
}

/// Divides the memory that `measure` returns. None: no GPU computes.
///
/// # Errors
/// The image, the step, the configured size or a usable context does not fit.
pub fn divide_measured(
    config: &Config,
    backend: &mut dyn Backend,
    tower: Option<TowerOf<'_>>,
    measure: Measure<'_>,
) -> Result<CacheSize, LoadError> {
    if measure().is_some() {
        backend.free_cache(); // of the load
        let mut tower = tower;
        let image = tower.as_mut().and_then(|(tower, vision)| largest_image((&mut **tower, *vision), backend));
        let image = image.transpose()?;
        let room = size_on(config, backend, measure()).map_err(|error| match &image {
            Some(image) => image.too_large(error),
            None => error,
        })?;
        let room = room.blocks;
        warm_up::run(backend, image.as_ref(), config.limits(), room)?;
        tower.into_iter().for_each(|(tower, _)| tower.stop());
        if let (Some(_), Some(gpus)) = (config.kv_memory, measure()) {
            let bytes = u64::from(room) * backend.shape().block_bytes;
            GpuMemory::require_kv(&gpus, &block_bytes(backend), bytes)?;
        }
        require_context_on(config, backend, measure())?;
        log(config, size_on(config, backend, measure())?.blocks, backend);
    }
    size_on(config, backend, measure())
}

/// Computes the largest image that a prompt may have.
fn largest_image((tower, vision): TowerOf<'_>, backend: &dyn Backend) -> Option<Result<LargestImage, LoadError>> {
    let image = vision.largest_image(backend.shape().context)?;
    Some(LargestImage::compute(tower, &image, vision.has_mutual_images()))
}

fn log(config: &Config, blocks: u32, backend: &dyn Backend) {
    for (gpu, part) in measured(config, backend).into_iter().flatten().zip(backend.device_parts()) {
        let GpuMemory { device, share, memory: DeviceMemory { free, total } } = gpu;
        let kv_mib = (u64::from(blocks) * part.block_bytes) >> 20;
        tracing::info!(device, share, total_mib = total >> 20, free_mib = free >> 20, kv_mib, "GPU memory divided");
    }
}

/// Returns the blocks for [`MIN_CONTEXT`] tokens. A model with a smaller context needs only the blocks of its
/// context.
fn least_blocks(shape: &ModelShape) -> u64 {
    shape.context.min(MIN_CONTEXT).div_ceil(shape.block) as u64
}

/// Returns the bytes of the least blocks and states.
fn least_bytes(shape: &ModelShape) -> u64 {
    let states = LEAST_STATES.saturating_mul(shape.state_bytes);
    (least_blocks(shape) * shape.block_bytes).saturating_add(states)
}

/// Fails if the KV cache has less room than [`MIN_CONTEXT`] tokens of one output need.
///
/// # Errors
/// [`MemoryError::Kv`].
pub fn require_context(config: &Config, backend: &dyn Backend) -> Result<(), LoadError> {
    require_context_on(config, backend, measured(config, backend))
}

fn require_context_on(config: &Config, backend: &dyn Backend, gpus: Option<Vec<GpuMemory>>) -> Result<(), LoadError> {
    let shape = backend.shape();
    if u64::from(size_on(config, backend, gpus.clone())?.blocks) < least_blocks(&shape) {
        let bytes = kv_bytes(config, backend, gpus);
        return Err(MemoryError::Kv { bytes, least: least_bytes(&shape) }.into());
    }
    Ok(())
}

/// Fails if weights take more bytes than are free. Unknown memory suffices.
pub fn require_free(needed: u64) -> Result<(), LoadError> {
    match free_bytes() {
        Some(available) if needed > available => Err(MemoryError::Weights { needed, available }.into()),
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

//! The place of the weights, and the memory that they need beside the KV cache.

use std::ops::Range;

use super::backend;
use super::model::{BackendChoice, costs, weight_bytes};
use crate::engine::Config;
use crate::engine::gpu_memory::{GpuMemory, MIN_CONTEXT, share_of};
use crate::engine::memory::require_free;
use crate::error::{DeviceNeed, Error, KvNeed};
use crate::models::decoder::Decoder;
use crate::torch::{Costs, Placement, device};
use crate::weights::ModelFile;

/// The free memory of a device if it is unknown, so that weights fit.
const UNKNOWN_BYTES: u64 = 1 << 50;

/// Places the layers on the configured devices, by their free memory. Fails if the weights take more
/// bytes than are free, or on a GPU, with the KV cache, than its share has left. The KV cache is the
/// configured one, or one for [`MIN_CONTEXT`] tokens. Unknown memory suffices.
///
/// # Errors
/// [`Error::Memory`], [`Error::GpuMemory`] or [`Error::GpuMemories`]; the model has fewer parts than there
/// are devices, or a device is not available.
pub(super) fn place(
    config: &Config,
    backend: BackendChoice,
    file: &ModelFile,
    decoder: &Decoder,
) -> Result<Placement, Error> {
    let BackendChoice::Torch(target) = backend else {
        require_free(weight_bytes(file, decoder, backend)?)?;
        return Ok(Placement::whole(tch::Device::Cpu, decoder.layers.len()));
    };
    let costs = costs(file, decoder, target)?;
    let devices = backend::devices(&config.devices)?;
    let gpus = GpuMemory::all(config.gpu_memory, devices.iter().map(|device| device::gpu(*device)));
    let free: Vec<u64> = match &gpus {
        Some(gpus) => gpus.iter().map(GpuMemory::left).collect(),
        None => vec![UNKNOWN_BYTES; devices.len()],
    };
    let placement = Placement::divide(&costs, &devices.into_iter().zip(free).collect::<Vec<_>>())?;
    match gpus {
        Some(gpus) => {
            require_all(&gpus, &costs, &placement, KvDemand::of(config, decoder.context, &costs))?;
        }
        None if config.devices.is_cpu() => require_free(costs.weights())?,
        None => {}
    }
    log_placement(config, &costs, &placement);
    Ok(placement)
}

/// Logs the layers of each device, if there are several.
fn log_placement(config: &Config, costs: &Costs, placement: &Placement) {
    let devices = config.devices.devices();
    for (device, part) in devices.iter().zip(placement.parts()).filter(|_| devices.len() > 1) {
        let (layers, weights_mib) = (&part.layers, costs.weights_of(&part.layers) >> 20);
        tracing::info!(%device, first = layers.start, layers = layers.len(), weights_mib, "layers placed");
    }
}

/// Fails if the weights of a part do not fit on its GPU beside its part of the KV cache. One GPU has all
/// weights.
///
/// # Errors
/// [`Error::GpuMemory`] or [`Error::GpuMemories`].
pub fn require_all(gpus: &[GpuMemory], costs: &Costs, placement: &Placement, kv: KvDemand) -> Result<(), Error> {
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

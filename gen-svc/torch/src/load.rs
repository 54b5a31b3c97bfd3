//! Loads models with libtorch: the configured device and numbers, the memory that they need, and the
//! weights.

use std::ops::Range;

use tandem_core::engine::{Config, DeviceChoice, DeviceList, DtypeChoice, GpuMemory, MIN_CONTEXT, Quantize};
use tandem_core::engine::{require_free, share_of};
use tandem_core::error::{DeviceNeed, KvNeed, LoadError, MemoryError};
use tandem_core::models::decoder::Decoder;
use tandem_core::models::{Backend, LoadedModel, Tower};
use tandem_core::weights::ModelFile;
use tch::{Cuda, Device, Kind};

use crate::backend::TorchBackend;
use crate::decoder::{FlashOperation, TorchDecoder, attention_of};
use crate::device;
use crate::placement::{Costs, Placement};
use crate::target::{TorchTarget, WeightBits};
use crate::tower::TorchTower;

/// The free memory of a device if it is unknown, so that weights fit.
const UNKNOWN_BYTES: u64 = 1 << 50;

/// Resolves the configured device, dtype and quantization. Of several devices, the target has the first.
///
/// # Errors
/// A device is not available, or does not support the dtype or the quantization.
pub(crate) fn resolve(config: &Config) -> Result<TorchTarget, LoadError> {
    let device = devices(&config.devices)?.first().copied().unwrap_or(Device::Cpu);
    let bits = bits(config.quantize)?;
    let dtype = match config.dtype {
        DtypeChoice::F32 => Kind::Float,
        DtypeChoice::Bf16 => Kind::BFloat16,
        DtypeChoice::F16 => Kind::Half,
        DtypeChoice::Auto if device == Device::Cpu => Kind::Float,
        DtypeChoice::Auto => Kind::BFloat16,
    };
    if device.is_cuda() && bits == WeightBits::Int4 && dtype != Kind::BFloat16 {
        return Err(LoadError::QuantizeGpuDtype);
    }
    Ok(TorchTarget { device, dtype, bits, batch_invariant: config.batch_invariant, ..TorchTarget::REFERENCE })
}

/// Loads the described model and its tower, with the layers placed on the configured devices.
///
/// # Errors
/// The weights do not fit, a tensor cannot be read, or libtorch fails.
pub(crate) fn load_configured(
    config: &Config,
    file: &ModelFile,
    decoder: Decoder,
    target: TorchTarget,
) -> Result<LoadedModel, LoadError> {
    require_supported(&decoder)?;
    let placement = place(config, file, &decoder, target)?;
    let flash = target.device.is_cuda().then_some(FlashOperation::LIBTORCH);
    let tower = load_tower(file, target)?;
    Ok(LoadedModel { backend: load(file, decoder, target, &placement, flash)?, tower })
}

/// Loads the described model, with its layers placed on one or more devices, and with an implementation of
/// flash attention, which is used where it serves.
///
/// # Errors
/// A tensor cannot be read, there is no memory, or libtorch fails.
pub fn load(
    file: &ModelFile,
    decoder: Decoder,
    target: TorchTarget,
    placement: &Placement,
    flash: Option<FlashOperation>,
) -> Result<Box<dyn Backend>, LoadError> {
    require_supported(&decoder)?;
    let model = TorchDecoder::load(decoder, file, target, placement, flash)?;
    Ok(Box::new(TorchBackend::new(Box::new(model))))
}

/// Fails if libtorch does not compute a part of the model.
fn require_supported(decoder: &Decoder) -> Result<(), LoadError> {
    decoder.layers.iter().try_for_each(|layer| attention_of(layer).map(drop))
}

/// Loads the tower of the file, if it has one.
///
/// # Errors
/// The tower is not supported, a tensor cannot be read, there is no memory, or libtorch fails.
pub fn load_tower(file: &ModelFile, target: TorchTarget) -> Result<Option<Box<dyn Tower>>, LoadError> {
    Ok(TorchTower::open(file, target)?.map(|tower| Box::new(tower) as Box<dyn Tower>))
}

/// Places the layers on the configured devices, by their free memory. Fails if the weights take more
/// bytes than are free, or on a GPU, with the KV cache, than its share has left. The KV cache is the
/// configured one, or one for [`MIN_CONTEXT`] tokens. Unknown memory suffices.
///
/// # Errors
/// [`LoadError::Memory`]; the model has fewer parts than there are devices, or a device is not available.
fn place(config: &Config, file: &ModelFile, decoder: &Decoder, target: TorchTarget) -> Result<Placement, LoadError> {
    let costs = costs(file, decoder, target)?;
    let devices = devices(&config.devices)?;
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

/// Returns the sizes of the described model and of the tower in its file.
fn costs(file: &ModelFile, decoder: &Decoder, target: TorchTarget) -> Result<Costs, LoadError> {
    let costs = Costs::of(decoder, target);
    Ok(Costs { first: costs.first.saturating_add(TorchTower::weight_bytes(file, target)?), ..costs })
}

/// Logs the layers of each device, if there are several.
fn log_placement(config: &Config, costs: &Costs, placement: &Placement) {
    let devices = config.devices.devices();
    for (device, part) in devices.iter().zip(placement.parts()).filter(|_| devices.len() > 1) {
        let (layers, weights_mib) = (&part.layers, costs.weights_of(&part.layers) >> 20);
        tracing::info!(%device, first = layers.start, layers = layers.len(), weights_mib, "layers placed");
    }
}

/// Returns the configured devices, in order.
fn devices(list: &DeviceList) -> Result<Vec<Device>, LoadError> {
    let device = |device: &DeviceChoice| match device {
        DeviceChoice::Cpu | DeviceChoice::CpuTorch => Ok(Device::Cpu),
        DeviceChoice::Cuda(index) => cuda(*index),
    };
    list.devices().iter().map(device).collect()
}

fn cuda(index: usize) -> Result<Device, LoadError> {
    let device = DeviceChoice::Cuda(index).to_string();
    let count = Cuda::device_count();
    if (index as i64) < count {
        return Ok(Device::Cuda(index));
    }
    let problem = match count {
        1.. => format!("the last GPU is cuda:{}", count - 1),
        _ if tch::utils::has_cudart() => {
            "no GPU was found: check the driver with nvidia-smi, or use --device cpu".to_owned()
        }
        _ => "libtorch has no CUDA: `cargo xtask setup --cuda` installs one that has, or use --device cpu".to_owned(),
    };
    Err(LoadError::Device { device, problem })
}

fn bits(quantize: Option<Quantize>) -> Result<WeightBits, LoadError> {
    match quantize {
        None | Some(Quantize::None) => Ok(WeightBits::Full),
        Some(Quantize::Int8) => Ok(WeightBits::Int8),
        Some(Quantize::Int4) => Ok(WeightBits::Int4),
        Some(keep @ Quantize::Keep) => Err(LoadError::QuantizeDevice { quantize: keep.name() }),
    }
}

/// Fails if the weights of a part do not fit on its GPU together with its part of the KV cache. One GPU has all
/// weights.
///
/// # Errors
/// [`MemoryError::Gpu`] or [`MemoryError::Gpus`].
pub fn require_all(gpus: &[GpuMemory], costs: &Costs, placement: &Placement, kv: KvDemand) -> Result<(), LoadError> {
    let parts = placement.parts().iter();
    let needs = parts.map(|part| (costs.weights_of(&part.layers), kv.part(costs, &part.layers)));
    let needs: Vec<DeviceNeed> = gpus.iter().zip(needs).map(|(gpu, (needed, kv))| gpu.need(needed, kv)).collect();
    if needs.iter().all(DeviceNeed::fits) {
        return Ok(());
    }
    let share = gpus.first().map_or(1.0, |gpu| gpu.share);
    match <[DeviceNeed; 1]>::try_from(needs) {
        Ok([DeviceNeed { device, needed, kv, available, total }]) => {
            Err(MemoryError::Gpu { device, needed, kv, available, share, total }.into())
        }
        Err(needs) => Err(MemoryError::Gpus { needs, share }.into()),
    }
}

/// The KV cache that must fit together with the weights, on all devices together.
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

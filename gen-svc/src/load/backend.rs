//! Resolves the configured device, dtype and quantization to the backend that computes.

use std::thread;

use tch::{Cuda, Device, Kind};

use super::model::BackendChoice;
use crate::engine::{Config, DeviceChoice, DeviceList, DtypeChoice, Quantize};
use crate::error::Error;
use crate::models::Precision;
use crate::torch::{TorchTarget, WeightBits};

/// The names of a backend's settings, as spelled on the command line.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct BackendNames {
    pub(super) dtype: &'static str,
    pub(super) quantization: &'static str,
}

/// Resolves the configured backend. libtorch's has the first of several devices.
///
/// # Errors
/// A device is not available, or does not support the dtype or the quantization; the CPU's own kernels
/// compute, which have one device.
pub(super) fn resolve(config: &Config) -> Result<BackendChoice, Error> {
    if config.devices.is_cpu() && !config.asks_for_torch() {
        require_one(&config.devices)?;
        let (threads, batch_invariant) = (threads(config.threads), config.batch_invariant);
        return Ok(BackendChoice::Cpu {
            precision: precision(config.dtype, config.quantize)?,
            threads,
            batch_invariant,
        });
    }
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
        return Err(Error::QuantizeGpuDtype);
    }
    let batch_invariant = config.batch_invariant;
    Ok(BackendChoice::Torch(TorchTarget { device, dtype, bits, batch_invariant, ..TorchTarget::REFERENCE }))
}

/// Returns the configured devices, in order.
///
/// # Errors
/// A device is not available.
pub(super) fn devices(list: &DeviceList) -> Result<Vec<Device>, Error> {
    let device = |device: &DeviceChoice| match device {
        DeviceChoice::Cpu => Ok(Device::Cpu),
        DeviceChoice::Cuda(index) => cuda(*index),
    };
    list.devices().iter().map(device).collect()
}

fn require_one(list: &DeviceList) -> Result<(), Error> {
    if list.devices().len() > 1 {
        return Err(Error::DevicesOfKernels { devices: list.to_string() });
    }
    Ok(())
}

/// Returns the bits of weights that libtorch computes.
fn bits(quantize: Option<Quantize>) -> Result<WeightBits, Error> {
    match quantize {
        None | Some(Quantize::None) => Ok(WeightBits::Full),
        Some(Quantize::Int8) => Ok(WeightBits::Int8),
        Some(Quantize::Int4) => Ok(WeightBits::Int4),
        Some(keep @ Quantize::Keep) => Err(Error::QuantizeDevice { quantize: keep.name() }),
    }
}

fn precision(dtype: DtypeChoice, quantize: Option<Quantize>) -> Result<Precision, Error> {
    if let (Some(quantize), DtypeChoice::Bf16) = (quantize.filter(|quantize| *quantize != Quantize::None), dtype) {
        return Err(Error::QuantizeDtype { quantize: quantize.name() });
    }
    Ok(match (quantize, dtype) {
        (Some(Quantize::Int8), _) => Precision::Int8,
        (Some(Quantize::Int4), _) => Precision::Int4,
        (Some(Quantize::Keep), _) | (None, DtypeChoice::Auto) => Precision::Keep,
        (_, DtypeChoice::Bf16) => Precision::Bf16,
        (_, DtypeChoice::F32 | DtypeChoice::F16 | DtypeChoice::Auto) => Precision::F32,
    })
}

/// Returns the number of compute threads. If 0 is configured, this is one per core.
pub(super) fn threads(configured: usize) -> usize {
    if configured == 0 { thread::available_parallelism().map_or(1, usize::from) } else { configured }
}

fn cuda(index: usize) -> Result<Device, Error> {
    let device = DeviceChoice::Cuda(index).to_string();
    let count = Cuda::device_count();
    if (index as i64) < count {
        return Ok(Device::Cuda(index));
    }
    let problem = match count {
        1.. => format!("this process has {count} GPUs, counted from 0"),
        _ if tch::utils::has_cudart() => {
            "no GPU was found: check the driver with nvidia-smi, or use --device cpu".to_owned()
        }
        _ => "libtorch has no CUDA: `cargo xtask setup --cuda` installs one that has, or use --device cpu".to_owned(),
    };
    Err(Error::Device { device, problem })
}

/// Returns the names of a backend's settings.
pub(super) fn names(backend: BackendChoice) -> BackendNames {
    match backend {
        BackendChoice::Torch(target) => {
            let dtype = match target.dtype {
                Kind::BFloat16 => DtypeChoice::Bf16,
                Kind::Half => DtypeChoice::F16,
                _ => DtypeChoice::F32,
            };
            let quantization = match target.bits {
                WeightBits::Full => Quantize::None,
                WeightBits::Int8 => Quantize::Int8,
                WeightBits::Int4 => Quantize::Int4,
            };
            BackendNames { dtype: dtype.name(), quantization: quantization.name() }
        }
        BackendChoice::Cpu { precision, .. } => {
            let (dtype, quantization) = match precision {
                Precision::F32 => (DtypeChoice::F32, Quantize::None),
                Precision::Bf16 => (DtypeChoice::Bf16, Quantize::None),
                Precision::Keep => (DtypeChoice::F32, Quantize::Keep),
                Precision::Int8 => (DtypeChoice::F32, Quantize::Int8),
                Precision::Int4 => (DtypeChoice::F32, Quantize::Int4),
            };
            BackendNames { dtype: dtype.name(), quantization: quantization.name() }
        }
    }
}

//! Which device and which dtype, as asked for and as found.

use std::str::FromStr;

use clap::ValueEnum;
use tch::{Cuda, Device, Kind};

use crate::error::Error;
use crate::weights::Placement;

/// The device that was asked for: `cpu`, `cuda` or `cuda:N`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DeviceChoice {
    /// The processor.
    Cpu,
    /// The N-th GPU.
    Cuda(usize),
}

impl FromStr for DeviceChoice {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let number = match text {
            "cpu" => return Ok(Self::Cpu),
            "cuda" => Some(0),
            _ => text.strip_prefix("cuda:").and_then(|number| number.parse().ok()),
        };
        number.map(Self::Cuda).ok_or_else(|| format!("{text:?} is none of cpu, cuda, cuda:0, cuda:1, …"))
    }
}

/// The dtype that was asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum DtypeChoice {
    /// f32 on the CPU, bf16 on a GPU.
    Auto,
    /// 32-bit floats: the reference.
    F32,
    /// bfloat16: half the memory, other roundings.
    Bf16,
}

/// Settles both.
///
/// # Errors
/// The device is not there.
pub(super) fn choose(device: DeviceChoice, dtype: DtypeChoice) -> Result<Placement, Error> {
    let device = match device {
        DeviceChoice::Cpu => Device::Cpu,
        DeviceChoice::Cuda(number) => cuda(number)?,
    };
    let dtype = match dtype {
        DtypeChoice::F32 => Kind::Float,
        DtypeChoice::Bf16 => Kind::BFloat16,
        DtypeChoice::Auto if device == Device::Cpu => Kind::Float,
        DtypeChoice::Auto => Kind::BFloat16,
    };
    Ok(Placement { device, dtype })
}

fn cuda(number: usize) -> Result<Device, Error> {
    let device = Device::Cuda(number);
    let missing = |problem| Error::Device { device: device_name(device), problem };
    if !Cuda::is_available() {
        return Err(missing("this libtorch has no CUDA, or the machine no GPU; use --device cpu".into()));
    }
    match Cuda::device_count() {
        count if (number as i64) < count => Ok(device),
        count => Err(missing(format!("the machine has {count} GPUs, counted from 0"))),
    }
}

/// As `--device` takes it.
pub(super) fn device_name(device: Device) -> String {
    match device {
        Device::Cuda(number) => format!("cuda:{number}"),
        _ => "cpu".into(),
    }
}

/// As `--dtype` takes it.
pub(super) fn dtype_name(dtype: Kind) -> &'static str {
    match dtype {
        Kind::BFloat16 => "bf16",
        _ => "f32",
    }
}

//! Which device and which dtype, as asked for and as found.

use std::str::FromStr;
use std::thread;

use clap::ValueEnum;
use tch::{Cuda, Device, Kind};

use super::Config;
use crate::error::Error;
use crate::models::{Backend, Precision};
use crate::weights::TorchTarget;

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
    /// f32 on the CPU, but quantized blocks as they are stored; bf16 on a GPU.
    Auto,
    /// 32-bit floats: the reference.
    F32,
    /// bfloat16: half the memory, other roundings.
    Bf16,
}

/// How weights are made smaller, on the CPU.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Quantize {
    /// Not at all: all are of the dtype.
    None,
    /// To 8 bits.
    Int8,
    /// To 4 bits, the first and the last matrix to 8.
    Int4,
    /// A GGUF's own blocks, as they are stored.
    Keep,
}

/// Settles what computes, and in what.
///
/// # Errors
/// The device is not there, or cannot do what is asked.
pub(super) fn choose(config: &Config) -> Result<Backend, Error> {
    let device = match config.device {
        DeviceChoice::Cpu if config.reference => Device::Cpu,
        DeviceChoice::Cpu => {
            let precision = precision(config.dtype, config.quantize)?;
            return Ok(Backend::Cpu { precision, threads: threads(config.threads) });
        }
        DeviceChoice::Cuda(number) => cuda(number)?,
    };
    if let Some(quantize) = config.quantize.filter(|quantize| *quantize != Quantize::None) {
        return Err(Error::QuantizeDevice { quantize: quantize_name(quantize) });
    }
    let dtype = match config.dtype {
        DtypeChoice::F32 => Kind::Float,
        DtypeChoice::Bf16 => Kind::BFloat16,
        DtypeChoice::Auto if device == Device::Cpu => Kind::Float,
        DtypeChoice::Auto => Kind::BFloat16,
    };
    Ok(Backend::Torch(TorchTarget { device, dtype }))
}

fn precision(dtype: DtypeChoice, quantize: Option<Quantize>) -> Result<Precision, Error> {
    if let (Some(quantize), DtypeChoice::Bf16) = (quantize.filter(|quantize| *quantize != Quantize::None), dtype) {
        return Err(Error::QuantizeDtype { quantize: quantize_name(quantize) });
    }
    Ok(match (quantize, dtype) {
        (Some(Quantize::Int8), _) => Precision::Int8,
        (Some(Quantize::Int4), _) => Precision::Int4,
        (Some(Quantize::Keep), _) | (None, DtypeChoice::Auto) => Precision::Keep,
        (_, DtypeChoice::Bf16) => Precision::Bf16,
        (_, DtypeChoice::F32 | DtypeChoice::Auto) => Precision::F32,
    })
}

/// As `--quantize` takes it.
fn quantize_name(quantize: Quantize) -> String {
    quantize.to_possible_value().map(|value| value.get_name().to_owned()).unwrap_or_default()
}

/// As asked, or one per core.
pub(super) fn threads(asked: usize) -> usize {
    if asked == 0 { thread::available_parallelism().map_or(1, usize::from) } else { asked }
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

/// Where it computes, as `--device` takes it; in what, as `--dtype` does; and how weights are made smaller, as `--quantize` does.
pub(super) fn names(runtime: Backend) -> [String; 3] {
    match runtime {
        Backend::Torch(target) => [device_name(target.device), dtype_name(target.dtype).to_owned(), "none".to_owned()],
        Backend::Cpu { precision, .. } => {
            let (dtype, quantization) = match precision {
                Precision::F32 => ("f32", "none"),
                Precision::Bf16 => ("bf16", "none"),
                Precision::Keep => ("f32", "keep"),
                Precision::Int8 => ("f32", "int8"),
                Precision::Int4 => ("f32", "int4"),
            };
            ["cpu".to_owned(), dtype.to_owned(), quantization.to_owned()]
        }
    }
}

/// As `--device` takes it.
fn device_name(device: Device) -> String {
    match device {
        Device::Cuda(number) => format!("cuda:{number}"),
        _ => "cpu".into(),
    }
}

/// As `--dtype` takes it.
fn dtype_name(dtype: Kind) -> &'static str {
    match dtype {
        Kind::BFloat16 => "bf16",
        _ => "f32",
    }
}

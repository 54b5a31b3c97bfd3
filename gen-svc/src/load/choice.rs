//! The backend that the configuration and the model need.

use std::thread;

use tandem_core::engine::{Config, DtypeChoice, Quantize, require_free};
use tandem_core::error::LoadError;
use tandem_core::library::{Library, Target};
use tandem_core::models::decoder::Decoder;
use tandem_core::models::{CpuDecoder, LoadedModel, Precision};
use tandem_core::weights::ModelFile;

/// The backend that computes a model.
#[derive(Debug)]
pub(super) enum BackendChoice {
    /// The library, on any device.
    Library(Box<dyn Target>),
    /// The kernels of this project, on the CPU.
    Cpu {
        /// The precision of the weights.
        precision: Precision,
        /// Compute threads.
        threads: usize,
    },
}

/// Resolves the configured backend.
///
/// # Errors
/// A device is not available, or does not support the dtype or the quantization; the CPU's own kernels
/// compute, which have one device.
pub(super) fn resolve(config: &Config, library: &dyn Library) -> Result<BackendChoice, LoadError> {
    if !config.devices.is_cpu() || config.asks_for_torch() {
        return library.resolve(config).map(BackendChoice::Library);
    }
    let precision = precision(config.dtype, config.quantize)?;
    Ok(BackendChoice::Cpu { precision, threads: threads(config.threads) })
}

fn precision(dtype: DtypeChoice, quantize: Option<Quantize>) -> Result<Precision, LoadError> {
    if let (Some(quantize), DtypeChoice::Bf16) = (quantize.filter(|quantize| *quantize != Quantize::None), dtype) {
        return Err(LoadError::QuantizeDtype { quantize: quantize.name() });
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

/// A loaded model, and the dtype and the quantization of its weights.
pub(super) struct Loaded {
    pub(super) model: LoadedModel,
    pub(super) dtype: DtypeChoice,
    pub(super) quantization: Quantize,
}

impl Loaded {
    fn new(model: LoadedModel, (dtype, quantization): (DtypeChoice, Quantize)) -> Self {
        Self { model, dtype, quantization }
    }
}

/// Returns the dtype and the quantization of the kernels' weights.
fn names(precision: Precision) -> (DtypeChoice, Quantize) {
    match precision {
        Precision::F32 => (DtypeChoice::F32, Quantize::None),
        Precision::Bf16 => (DtypeChoice::Bf16, Quantize::None),
        Precision::Keep => (DtypeChoice::F32, Quantize::Keep),
        Precision::Int8 => (DtypeChoice::F32, Quantize::Int8),
        Precision::Int4 => (DtypeChoice::F32, Quantize::Int4),
    }
}

/// Loads the described model with the resolved backend, if its weights fit. The library computes models that the
/// kernels do not support.
///
/// # Errors
/// The weights do not fit, a tensor cannot be read, or the backend fails.
pub(super) fn load(
    config: &Config,
    file: &ModelFile,
    decoder: Decoder,
    choice: &BackendChoice,
    library: &dyn Library,
) -> Result<Loaded, LoadError> {
    let with = |target: &dyn Target, decoder| Ok(Loaded::new(target.load(config, file, decoder)?, target.names()));
    match choice {
        BackendChoice::Library(target) => with(target.as_ref(), decoder),
        BackendChoice::Cpu { precision, .. } if !CpuDecoder::can_compute(&decoder) => {
            with(library.substitute(config, file, *precision)?.as_ref(), decoder)
        }
        BackendChoice::Cpu { precision, threads } => {
            require_free(weight_bytes(file, &decoder, *precision)?)?;
            let backend = CpuDecoder::backend(decoder, file, *precision, *threads)?;
            Ok(Loaded::new(LoadedModel { backend, tower: library.load_tower(file)? }, names(*precision)))
        }
    }
}

/// Returns the bytes that the weights of the described model take once the kernels have loaded them.
fn weight_bytes(file: &ModelFile, decoder: &Decoder, precision: Precision) -> Result<u64, LoadError> {
    let bits = match precision {
        Precision::F32 => 32,
        Precision::Bf16 => 16,
        Precision::Int8 => 9,
        Precision::Int4 => 5,
        Precision::Keep => return kept_bytes(file, decoder),
    };
    Ok(decoder.parameter_count().saturating_mul(bits) / 8)
}

/// Returns the bytes of the weights if blocks are kept as stored, and all others become 32-bit
/// floats.
fn kept_bytes(file: &ModelFile, decoder: &Decoder) -> Result<u64, LoadError> {
    let mut bytes: u64 = 0;
    for (name, shape) in decoder.tensors() {
        let stored = file.tensor(&name, &shape)?;
        let floats = 4 * shape.iter().product::<usize>();
        bytes += if stored.is_float() { floats } else { stored.bytes.len() } as u64;
    }
    Ok(bytes)
}

//! libtorch as the loader's library.

use tandem_core::engine::{Config, DtypeChoice, Quantize};
use tandem_core::error::LoadError;
use tandem_core::library::{Library, Target};
use tandem_core::models::decoder::Decoder;
use tandem_core::models::{LoadedModel, Precision, Tower};
use tandem_core::weights::ModelFile;
use tch::Kind;

use crate::load;
use crate::openmp;
use crate::target::{TorchTarget, WeightBits};

/// libtorch: GPUs, images, and the models that the CPU's kernels do not compute.
#[derive(Debug, Clone, Copy)]
pub struct Libtorch;

impl Library for Libtorch {
    fn version(&self) -> (&'static str, String) {
        ("libtorch", env!("TANDEM_LIBTORCH_VERSION").to_owned())
    }

    fn prepare_process(&self) {
        openmp::shorten_spinning();
    }

    fn set_threads(&self, threads: usize) {
        tch::set_num_threads(i32::try_from(threads).unwrap_or(i32::MAX));
    }

    fn resolve(&self, config: &Config) -> Result<Box<dyn Target>, LoadError> {
        Ok(Box::new(load::resolve(config)?))
    }

    /// Quantized weights become 32-bit floats.
    fn substitute(
        &self,
        config: &Config,
        _file: &ModelFile,
        precision: Precision,
    ) -> Result<Box<dyn Target>, LoadError> {
        let dtype = if precision == Precision::Bf16 { Kind::BFloat16 } else { Kind::Float };
        Ok(Box::new(TorchTarget { dtype, batch_invariant: config.batch_invariant, ..TorchTarget::REFERENCE }))
    }

    fn has_towers(&self) -> bool {
        true
    }

    fn load_tower(&self, file: &ModelFile) -> Result<Option<Box<dyn Tower>>, LoadError> {
        load::load_tower(file, TorchTarget::REFERENCE)
    }
}

impl Target for TorchTarget {
    fn names(&self) -> (DtypeChoice, Quantize) {
        let dtype = match self.dtype {
            Kind::BFloat16 => DtypeChoice::Bf16,
            Kind::Half => DtypeChoice::F16,
            _ => DtypeChoice::F32,
        };
        let quantization = match self.bits {
            WeightBits::Full => Quantize::None,
            WeightBits::Int8 => Quantize::Int8,
            WeightBits::Int4 => Quantize::Int4,
        };
        (dtype, quantization)
    }

    fn load(&self, config: &Config, file: &ModelFile, decoder: Decoder) -> Result<LoadedModel, LoadError> {
        load::load_configured(config, file, decoder, *self)
    }
}

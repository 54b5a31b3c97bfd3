//! The backend that computes a test's model.

use tandem_core::engine::Config;
use tandem_core::error::LoadError;
use tandem_core::library::Library as _;
use tandem_core::models::decoder::Decoder;
use tandem_core::models::{CpuDecoder, LoadedModel, Precision};
use tandem_core::weights::ModelFile;
use tandem_torch::{Libtorch, Placement, TorchTarget};

/// A backend on one device.
#[derive(Debug, Clone, Copy)]
pub enum BackendChoice {
    /// libtorch.
    Torch(TorchTarget),
    /// The kernels of this project, on the CPU.
    Cpu {
        /// The precision of the weights.
        precision: Precision,
        /// Compute threads.
        threads: usize,
    },
}

/// Loads the described model and its tower. libtorch computes models that the kernels do not support.
///
/// # Errors
/// A tensor cannot be read, or there is no memory.
pub fn load(file: &ModelFile, decoder: Decoder, choice: BackendChoice) -> Result<LoadedModel, LoadError> {
    match choice {
        BackendChoice::Torch(target) => {
            let placement = Placement::whole(target.device, decoder.layers.len());
            let tower = tandem_torch::load::load_tower(file, target)?;
            Ok(LoadedModel { backend: tandem_torch::load::load(file, decoder, target, &placement, None)?, tower })
        }
        BackendChoice::Cpu { precision, threads } if CpuDecoder::can_compute(&decoder) => {
            let backend = CpuDecoder::backend(decoder, file, precision, threads)?;
            Ok(LoadedModel { backend, tower: Libtorch.load_tower(file)? })
        }
        BackendChoice::Cpu { precision, .. } => {
            let config = Config::default();
            Libtorch.substitute(&config, file, precision)?.load(&config, file, decoder)
        }
    }
}

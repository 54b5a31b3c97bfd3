//! libtorch, which this program is built with.

use tandem_core::engine::Config;
use tandem_core::error::LoadError;
use tandem_core::models::decoder::Decoder;
use tandem_core::models::{LoadedModel, Precision, Tower};
use tandem_core::weights::ModelFile;
pub(super) use tandem_torch::TorchTarget as Target;
pub(super) use tandem_torch::load::{load_configured, names, resolve, set_threads};
use tandem_torch::{FlashOperation, Placement, TorchTarget};

/// True if images can be computed.
pub(super) const HAS_TOWERS: bool = true;

/// Loads a model and its tower onto the target's device.
pub(super) fn load_whole(file: &ModelFile, decoder: Decoder, target: TorchTarget) -> Result<LoadedModel, LoadError> {
    let placement = Placement::whole(target.device, decoder.layers.len());
    let flash = target.device.is_cuda().then_some(FlashOperation::LIBTORCH);
    let tower = tandem_torch::load::load_tower(file, target)?;
    Ok(LoadedModel { backend: tandem_torch::load::load(file, decoder, target, &placement, flash)?, tower })
}

/// Loads a model that the CPU's kernels do not support.
pub(super) fn load_substitute(
    config: &Config,
    file: &ModelFile,
    decoder: Decoder,
    precision: Precision,
) -> Result<LoadedModel, LoadError> {
    load_configured(config, file, decoder, tandem_torch::load::substitute(precision, config.batch_invariant))
}

/// Loads the tower of a model whose text the CPU's kernels compute.
pub(super) fn load_tower(file: &ModelFile) -> Result<Option<Box<dyn Tower>>, LoadError> {
    tandem_torch::load::load_tower(file, TorchTarget::REFERENCE)
}

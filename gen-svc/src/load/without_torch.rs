//! In place of libtorch, for a program that is built without it.

use tandem_core::engine::{Config, DtypeChoice, Quantize};
use tandem_core::error::LoadError;
use tandem_core::models::decoder::Decoder;
use tandem_core::models::{LoadedModel, Precision, Tower};
use tandem_core::weights::ModelFile;

/// False: libtorch computes images.
pub(super) const HAS_TOWERS: bool = false;

/// The settings of libtorch. There are none.
#[derive(Debug, Clone, Copy)]
pub enum Target {}

/// Sets no threads.
pub(super) fn set_threads(_threads: usize) {}

/// Refuses a configuration that asks for libtorch.
///
/// # Errors
/// [`LoadError::WithoutTorch`].
pub(super) fn resolve(config: &Config) -> Result<Target, LoadError> {
    let needed_by = match config.devices.is_cpu() {
        true => "--runtime torch and --dtype f16".to_owned(),
        false => format!("--device {}", config.devices),
    };
    Err(LoadError::WithoutTorch { needed_by })
}

/// Returns the names of settings, of which there are none.
pub(super) fn names(target: Target) -> (DtypeChoice, Quantize) {
    match target {}
}

/// Loads a model with settings, of which there are none.
pub(super) fn load_configured(
    _config: &Config,
    _file: &ModelFile,
    _decoder: Decoder,
    target: Target,
) -> Result<LoadedModel, LoadError> {
    match target {}
}

/// Loads a model with settings, of which there are none.
pub(super) fn load_whole(_file: &ModelFile, _decoder: Decoder, target: Target) -> Result<LoadedModel, LoadError> {
    match target {}
}

/// Refuses a model that the CPU's kernels do not compute.
///
/// # Errors
/// [`LoadError::WithoutTorch`].
pub(super) fn load_substitute(
    _config: &Config,
    file: &ModelFile,
    _decoder: Decoder,
    _precision: Precision,
) -> Result<LoadedModel, LoadError> {
    Err(LoadError::WithoutTorch { needed_by: format!("this model of architecture {}", file.architecture()) })
}

/// Loads no tower: the model takes text only.
pub(super) fn load_tower(_file: &ModelFile) -> Result<Option<Box<dyn Tower>>, LoadError> {
    Ok(None)
}

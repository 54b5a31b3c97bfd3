//! No library beside the CPU's kernels.

use tandem_core::engine::Config;
use tandem_core::error::LoadError;
use tandem_core::library::{Library, Target};
use tandem_core::models::{Precision, Tower};
use tandem_core::weights::ModelFile;

/// The CPU's kernels alone. What needs libtorch is refused.
#[derive(Debug, Clone, Copy)]
pub struct WithoutLibrary;

impl Library for WithoutLibrary {
    fn version(&self) -> (&'static str, String) {
        ("libtorch", "none".to_owned())
    }

    fn resolve(&self, config: &Config) -> Result<Box<dyn Target>, LoadError> {
        let needed_by = match config.devices.is_cpu() {
            true => "--runtime torch and --dtype f16".to_owned(),
            false => format!("--device {}", config.devices),
        };
        Err(LoadError::WithoutTorch { needed_by })
    }

    fn substitute(
        &self,
        _config: &Config,
        file: &ModelFile,
        _precision: Precision,
    ) -> Result<Box<dyn Target>, LoadError> {
        Err(LoadError::WithoutTorch { needed_by: format!("this model of architecture {}", file.architecture()) })
    }

    fn has_towers(&self) -> bool {
        false
    }

    fn load_tower(&self, _file: &ModelFile) -> Result<Option<Box<dyn Tower>>, LoadError> {
        Ok(None)
    }
}

//! No library in addition to the CPU's kernels.

use tandem_core::engine::{Config, DtypeChoice};
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
        if !config.devices.is_cpu() {
            return Err(LoadError::WithoutGpu { devices: config.devices.to_string() });
        }
        let needed_by = if config.dtype == DtypeChoice::F16 { "--dtype f16" } else { "--device cpu-torch" };
        Err(LoadError::WithoutTorch { needed_by: needed_by.to_owned() })
    }

    fn substitute(
        &self,
        _config: &Config,
        file: &ModelFile,
        _precision: Precision,
    ) -> Result<Box<dyn Target>, LoadError> {
        let architecture = file.architecture();
        let needed_by = format!(
            "this model of architecture {architecture}, whose layers or head size the CPU's kernels do not compute,"
        );
        Err(LoadError::WithoutTorch { needed_by })
    }

    fn has_towers(&self) -> bool {
        false
    }

    fn load_tower(&self, _file: &ModelFile) -> Result<Option<Box<dyn Tower>>, LoadError> {
        Ok(None)
    }
}

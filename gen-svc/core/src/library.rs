//! The port of the loader to a library that computes in addition to the CPU's kernels.

use std::fmt;

use crate::engine::{Config, DtypeChoice, Quantize};
use crate::error::LoadError;
use crate::models::decoder::Decoder;
use crate::models::{LoadedModel, Precision, Tower};
use crate::weights::ModelFile;

/// A library that computes in addition to the CPU's kernels: other devices, other models, images.
pub trait Library: fmt::Debug + Send + Sync {
    /// Returns the library's name and version.
    fn version(&self) -> (&'static str, String);

    /// Prepares the process, before it has threads.
    fn prepare_process(&self) {}

    /// Sets the number of threads that compute on the CPU. Called on the thread that computes.
    fn set_threads(&self, _threads: usize) {}

    /// Resolves the configured device, dtype and quantization.
    ///
    /// # Errors
    /// A device is not available, or does not support the dtype or the quantization.
    fn resolve(&self, config: &Config) -> Result<Box<dyn Target>, LoadError>;

    /// Returns the target of a model that the CPU's kernels do not compute, in place of their precision.
    ///
    /// # Errors
    /// The library does not compute it.
    fn substitute(&self, config: &Config, file: &ModelFile, precision: Precision)
    -> Result<Box<dyn Target>, LoadError>;

    /// Returns true if the library computes images.
    fn has_towers(&self) -> bool;

    /// Loads the tower of a model whose text the CPU's kernels compute, if the file has one.
    ///
    /// # Errors
    /// The tower is not supported, a tensor cannot be read, or there is no memory.
    fn load_tower(&self, file: &ModelFile) -> Result<Option<Box<dyn Tower>>, LoadError>;
}

/// A library's devices and numbers for one model.
pub trait Target: fmt::Debug {
    /// Returns the dtype and the quantization, as on the command line.
    fn names(&self) -> (DtypeChoice, Quantize);

    /// Loads the described model and its tower onto the configured devices.
    ///
    /// # Errors
    /// The weights do not fit, a tensor cannot be read, or the library fails.
    fn load(&self, config: &Config, file: &ModelFile, decoder: Decoder) -> Result<LoadedModel, LoadError>;
}

//! The interface of a model whose rows of logits stay on a device of libtorch.

use tandem_core::models::{DevicePart, ModelShape, SequenceChunk};
use tch::{Device, Tensor};

use crate::device::upload::{Sent, Upload};
use crate::error::Error;
use crate::sampler::DeviceSampler;

/// A causal language model, with the KV cache of all sequences.
pub trait TorchModel: std::fmt::Debug + Send {
    /// Returns the model's sizes.
    fn shape(&self) -> ModelShape;

    /// Returns the most tokens of a sequence that is not [long](SequenceChunk::is_long). `None`: all sequences
    /// are computed alike.
    fn long_after(&self) -> Option<usize> {
        None
    }

    /// Allocates `blocks` blocks of the KV cache, in place of earlier ones. Called before the first step.
    ///
    /// # Errors
    /// There is not that much memory.
    fn allocate(&mut self, blocks: u32) -> Result<(), Error>;

    /// Returns the devices in the order of computation.
    fn device_parts(&self) -> Vec<DevicePart> {
        Vec::new()
    }

    /// Returns the device of the rows.
    fn device(&self) -> Device;

    /// Returns the sampler of the rows.
    fn sampler(&self) -> DeviceSampler {
        DeviceSampler::new(self.shape().vocabulary, self.device())
    }

    /// Computes the chunks independently of each other. Writes their keys and values into their
    /// blocks. Returns the requested rows in order. `None`: none are requested. `upload` travels to the device
    /// of the rows with the inputs of the step. `chosen` are the tokens of the step before, `[n, 1]`, if the
    /// host does not know them.
    ///
    /// Preconditions: as those of [`Backend::launch`](tandem_core::models::Backend::launch).
    ///
    /// # Errors
    /// libtorch's. The chunks' blocks are then undefined from `past` on.
    fn forward(
        &mut self,
        chunks: &[SequenceChunk<'_>],
        upload: Upload,
        chosen: Option<&Tensor>,
    ) -> Result<Option<DeviceRows>, Error>;

    /// Returns memory that libtorch keeps for later calls to the devices.
    fn free_cache(&mut self) {}
}

/// Rows of logits on the device.
#[derive(Debug)]
pub struct DeviceRows {
    /// `[rows, vocabulary]`, 32-bit floats.
    pub(crate) rows: Tensor,
    /// The numbers that travelled there with the step's inputs.
    pub(crate) sent: Sent,
}

impl DeviceRows {
    /// Creates rows `[rows, vocabulary]` of 32-bit floats, and sends the numbers that travel with the step's
    /// inputs.
    ///
    /// # Errors
    /// libtorch's.
    pub fn new(rows: Tensor, upload: Upload) -> Result<Self, Error> {
        let sent = upload.send(rows.device())?;
        Ok(Self { rows, sent })
    }
}

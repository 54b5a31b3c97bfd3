//! Loads a described model with a chosen backend.

use tandem_kernels::{IsaLevel, Kernels};
use tch::Kind;

use crate::error::Error;
use crate::models::decoder::Decoder;
use crate::models::{CpuDecoder, HostBackend, LoadedModel, Precision, Tower};
use crate::torch::{Costs, FlashOperation, Placement, TorchBackend, TorchDecoder, TorchTarget, TorchTower};
use crate::weights::ModelFile;

/// The backend that computes a model.
#[derive(Debug, Clone, Copy)]
pub enum BackendChoice {
    /// libtorch, on any device.
    Torch(TorchTarget),
    /// The kernels of this project, on the CPU.
    Cpu {
        /// The precision of the weights.
        precision: Precision,
        /// Compute threads.
        threads: usize,
        /// [`TorchTarget::batch_invariant`] of a model that libtorch computes instead.
        batch_invariant: bool,
    },
}

/// Returns the bytes that the weights of the described model take once they are loaded.
///
/// # Errors
/// As [`describe`](crate::models::describe).
pub(super) fn weight_bytes(file: &ModelFile, decoder: &Decoder, backend: BackendChoice) -> Result<u64, Error> {
    let bits = match backend {
        BackendChoice::Torch(target) => return Ok(Costs::of(decoder, target).weights()),
        BackendChoice::Cpu { precision, .. } if !CpuDecoder::can_compute(decoder) => {
            return Ok(Costs::of(decoder, substitute(precision, false)).weights());
        }
        BackendChoice::Cpu { precision: Precision::F32, .. } => 32,
        BackendChoice::Cpu { precision: Precision::Bf16, .. } => 16,
        BackendChoice::Cpu { precision: Precision::Int8, .. } => 9,
        BackendChoice::Cpu { precision: Precision::Int4, .. } => 5,
        BackendChoice::Cpu { precision: Precision::Keep, .. } => return kept_bytes(file, decoder),
    };
    Ok(decoder.parameter_count().saturating_mul(bits) / 8)
}

/// Returns the sizes of the described model and of the tower in its file, which libtorch computes.
///
/// # Errors
/// The tower is not supported.
pub(super) fn costs(file: &ModelFile, decoder: &Decoder, target: TorchTarget) -> Result<Costs, Error> {
    let costs = Costs::of(decoder, target);
    Ok(Costs { first: costs.first.saturating_add(TorchTower::weight_bytes(file, target)?), ..costs })
}

/// Returns the target of libtorch for a model that the kernels do not support. Quantized weights
/// become 32-bit floats.
fn substitute(precision: Precision, batch_invariant: bool) -> TorchTarget {
    let dtype = if precision == Precision::Bf16 { Kind::BFloat16 } else { Kind::Float };
    TorchTarget { dtype, batch_invariant, ..TorchTarget::REFERENCE }
}

/// Returns the bytes of the weights if blocks are kept as stored, and all others become 32-bit
/// floats.
fn kept_bytes(file: &ModelFile, decoder: &Decoder) -> Result<u64, Error> {
    let mut bytes: u64 = 0;
    for (name, shape) in decoder.tensors() {
        let stored = file.tensor(&name, &shape)?;
        let floats = 4 * shape.iter().product::<usize>();
        bytes += if stored.is_float() { floats } else { stored.bytes.len() } as u64;
    }
    Ok(bytes)
}

/// Loads the described model onto one device. libtorch computes models that the kernels do not support.
///
/// # Errors
/// A tensor cannot be read, there is no memory, or libtorch fails.
pub fn load(file: &ModelFile, decoder: Decoder, backend: BackendChoice) -> Result<LoadedModel, Error> {
    let placement = Placement::whole(target(backend).device, decoder.layers.len());
    load_placed(file, decoder, backend, &placement)
}

/// As [`load`], with the layers placed on one or more devices. The kernels compute on one device in any
/// case.
///
/// # Errors
/// As [`load`].
pub(super) fn load_placed(
    file: &ModelFile,
    decoder: Decoder,
    backend: BackendChoice,
    placement: &Placement,
) -> Result<LoadedModel, Error> {
    let flash = target(backend).device.is_cuda().then_some(FlashOperation::LIBTORCH);
    load_with(file, decoder, backend, placement, flash)
}

/// As [`load`], with the layers placed on one or more devices, and with an implementation of flash attention
/// for a model that libtorch computes. It is used where it serves.
///
/// # Errors
/// As [`load`].
pub fn load_with(
    file: &ModelFile,
    decoder: Decoder,
    backend: BackendChoice,
    placement: &Placement,
    flash: Option<FlashOperation>,
) -> Result<LoadedModel, Error> {
    let tower = TorchTower::open(file, target(backend))?.map(|tower| Box::new(tower) as Box<dyn Tower>);
    let target = match backend {
        BackendChoice::Cpu { precision, threads, .. } if CpuDecoder::can_compute(&decoder) => {
            let kernels = Kernels::new(threads, IsaLevel::detect());
            let model = CpuDecoder::load(decoder, file, kernels, precision)?;
            return Ok(LoadedModel { backend: Box::new(HostBackend::new(Box::new(model))), tower });
        }
        BackendChoice::Cpu { precision, batch_invariant, .. } => substitute(precision, batch_invariant),
        BackendChoice::Torch(target) => target,
    };
    let model = TorchDecoder::load(decoder, file, target, placement, flash)?;
    Ok(LoadedModel { backend: Box::new(TorchBackend::new(Box::new(model))), tower })
}

/// Returns the target of the tower: the first device.
fn target(backend: BackendChoice) -> TorchTarget {
    match backend {
        BackendChoice::Cpu { .. } => TorchTarget::REFERENCE,
        BackendChoice::Torch(target) => target,
    }
}

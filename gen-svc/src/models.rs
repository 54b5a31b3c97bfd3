//! Models: from files to a decoder that a backend computes.

use std::path::Path;
use std::sync::Arc;

use tandem_kernels::{IsaLevel, Kernels};
use tandem_model_files::artifacts::Artifacts;
use tch::Kind;

use crate::error::Error;
use crate::weights::gguf::header::GgufHeader;
use crate::weights::{ModelFile, TorchTarget};

mod architecture;
pub mod architectures;
mod backend;
mod composite;
pub mod config;
mod cpu;
pub mod decoder;
mod features;
mod head;
mod host;
mod images;
mod interface;
mod mmproj;
mod placement;
mod rope;
mod torch;
pub mod vision;
mod windows;

pub use backend::{Backend, Drawn, KeptRow, logits};
use config::Config;
use cpu::CpuDecoder;
pub use cpu::Precision;
use decoder::Decoder;
pub use features::Features;
pub use host::HostBackend;
pub use interface::{DevicePart, ImageRows, Logits, LogitsFor, Model, ModelShape, SequenceChunk};
use mmproj::LanguageModel;
pub use placement::{Costs, LayerCosts, PlacedLayers, Placement};
use torch::TorchDecoder;
pub use torch::{
    AttentionCase, AttentionDifference, DeviceRows, FLASH_BLOCK, FlashCall, FlashOperation, TorchBackend, TorchModel,
    Workspace,
};
use vision::TorchTower;

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

/// A loaded model.
#[derive(Debug)]
pub struct LoadedModel {
    /// The text model.
    pub backend: Box<dyn Backend>,
    /// The tower of its images. `None`: the model takes text only.
    pub tower: Option<TorchTower>,
}

impl From<Box<dyn Backend>> for LoadedModel {
    fn from(backend: Box<dyn Backend>) -> Self {
        Self { backend, tower: None }
    }
}

impl From<Box<dyn Model>> for LoadedModel {
    fn from(model: Box<dyn Model>) -> Self {
        Self { backend: Box::new(HostBackend::new(model)), tower: None }
    }
}

/// Opens the weights that `artifacts` name: a GGUF file with the `mmproj` file beside it, if there is
/// one, or the safetensors files of a folder.
///
/// # Errors
/// There are no weights, or a header is malformed.
pub fn open(artifacts: &Artifacts) -> Result<ModelFile, Error> {
    open_with(artifacts, None)
}

/// As [`open`], with a given `mmproj` file for a GGUF file.
///
/// # Errors
/// There are no weights, or a header is malformed; the `mmproj` file is not supported, or is of
/// another model.
pub fn open_with(artifacts: &Artifacts, mmproj: Option<&Path>) -> Result<ModelFile, Error> {
    let Some(gguf) = artifacts.gguf() else {
        return match mmproj {
            None => ModelFile::from_folder(artifacts),
            Some(_) => Err(Error::MmprojOfFolder { model: artifacts.path.clone() }),
        };
    };
    let header = GgufHeader::new(Arc::clone(gguf))?;
    let (model_type, architecture) = architectures::of_gguf(&header)?;
    let model_type = model_type.to_owned();
    let hidden = header.find("embedding_length")?.unwrap_or(0);
    let text = LanguageModel { model_type: &model_type, hidden };
    match mmproj::find(&artifacts.path, mmproj, text)? {
        None => ModelFile::from_gguf(header, &model_type, architecture),
        Some(tower) => ModelFile::from_gguf_pair((header, &model_type, architecture), tower),
    }
}

/// Describes the model in `file`, and checks that the file has every tensor in its shape. Nothing
/// large is allocated, so that invented sizes in a config cause an error only.
///
/// # Errors
/// The architecture or one of its settings is not supported, or a tensor is missing or misshapen.
pub fn describe(file: &ModelFile) -> Result<Decoder, Error> {
    let architecture = architectures::find(file.architecture())?;
    let mut decoder = (architecture.describe)(&Config::new(file.config()))?;
    composite::tie(&mut decoder, file);
    head::untie(&mut decoder, file)?;
    for (name, shape) in decoder.tensors() {
        file.tensor(&name, &shape)?;
    }
    Ok(decoder)
}

/// Returns the bytes that the weights of the described model take once they are loaded.
///
/// # Errors
/// As [`describe`].
pub fn weight_bytes(file: &ModelFile, decoder: &Decoder, backend: BackendChoice) -> Result<u64, Error> {
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
pub fn costs(file: &ModelFile, decoder: &Decoder, target: TorchTarget) -> Result<Costs, Error> {
    let costs = Costs::of(decoder, target);
    Ok(Costs { first: costs.first.saturating_add(vision::weight_bytes(file, target)?), ..costs })
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
pub fn load_placed(
    file: &ModelFile,
    decoder: Decoder,
    backend: BackendChoice,
    placement: &Placement,
) -> Result<LoadedModel, Error> {
    let flash = target(backend).device.is_cuda().then_some(FlashOperation::LIBTORCH);
    load_with(file, decoder, backend, placement, flash)
}

/// As [`load_placed`], with an implementation of flash attention for a model that libtorch computes. It is
/// used where it serves.
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
    let tower = vision::load(file, target(backend))?;
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

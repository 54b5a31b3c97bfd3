//! Models: from files to a decoder that a backend computes.

use std::path::Path;
use std::sync::Arc;

use tandem_model_files::artifacts::Artifacts;

use crate::error::LoadError;
use crate::weights::ModelFile;
use crate::weights::gguf::header::GgufHeader;

mod architecture;
pub mod architectures;
mod backend;
mod biases;
pub mod config;
mod cpu;
pub mod decoder;
mod features;
mod head;
mod host;
pub mod images;
mod interface;
mod joined;
mod mmproj;
mod quantized;
mod rope;
mod unnamed;
mod unused;
pub mod vision;
mod windows;

pub use backend::{Backend, Drawn, KeptRow, Tower, logits};
use config::{Config, Reads};
pub use cpu::{CpuDecoder, Precision};
use decoder::Decoder;
pub use features::Features;
pub use host::HostBackend;
pub use interface::{DeviceMemory, DevicePart, Gpu, ImageRows, Logits, LogitsFor, Model, ModelShape, SequenceChunk};
use mmproj::LanguageModel;

/// A loaded model.
#[derive(Debug)]
pub struct LoadedModel {
    /// The text model.
    pub backend: Box<dyn Backend>,
    /// The tower of its images. `None`: the model takes text only.
    pub tower: Option<Box<dyn Tower>>,
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
pub fn open(artifacts: &Artifacts) -> Result<ModelFile, LoadError> {
    open_with(artifacts, None)
}

/// As [`open`], with a given `mmproj` file for a GGUF file.
///
/// # Errors
/// The architecture is not supported; there are no weights, or a header is malformed; the `mmproj` file is
/// not supported, or is of another model.
pub fn open_with(artifacts: &Artifacts, mmproj: Option<&Path>) -> Result<ModelFile, LoadError> {
    let Some(gguf) = artifacts.gguf() else {
        architectures::check(artifacts.architecture.as_deref().ok_or_else(|| unnamed::error(artifacts))?)?;
        return match mmproj {
            None => quantized::open(artifacts),
            Some(_) => Err(LoadError::MmprojOfFolder { model: artifacts.path.clone() }),
        };
    };
    let header = GgufHeader::new(Arc::clone(gguf))?;
    let (model_type, architecture) = architectures::of_gguf(&header)?;
    architectures::check(model_type)?;
    let model_type = model_type.to_owned();
    let hidden = header.find("embedding_length")?.unwrap_or(0);
    let text = LanguageModel { model_type: &model_type, hidden };
    match mmproj::find(&artifacts.path, mmproj, text)? {
        None => ModelFile::from_gguf(header, &model_type, architecture),
        Some(tower) => ModelFile::from_gguf_pair((header, &model_type, architecture), tower),
    }
}

/// Describes the model in `file`, and checks that the file has every tensor in its shape, and no others. Nothing
/// large is allocated, so that invented sizes in a config cause an error only.
///
/// # Errors
/// The architecture or one of its settings is not supported; a tensor is missing, misshapen or not used.
pub fn describe(file: &ModelFile) -> Result<Decoder, LoadError> {
    let reads = Reads::default();
    let config = Config::language(file.config()).recorded_by(&reads);
    let mut decoder = architectures::describe(file.architecture(), &config)?;
    unused::check_settings(file.config(), &reads)?;
    tie(&mut decoder, file);
    match check_tensors(&mut decoder, file, &reads) {
        Ok(()) => Ok(decoder),
        Err(error) => Err(quantized::explained(error, file.config())),
    }
}

/// Removes the output matrix of a model with images, if it is the embedding matrix by default. A file with both may
/// have different ones.
fn tie(decoder: &mut Decoder, file: &ModelFile) {
    let is_tied = vision::families::named(file.architecture()).is_some_and(|family| family.is_tied);
    let has_both = || ["lm_head.weight", "model.embed_tokens.weight"].iter().all(|name| file.has(name));
    if is_tied && file.config()["tie_word_embeddings"].is_null() && !has_both() {
        decoder.head = None;
    }
}

fn check_tensors(decoder: &mut Decoder, file: &ModelFile, reads: &Reads) -> Result<(), LoadError> {
    head::untie(decoder, file)?;
    joined::divide(decoder, file);
    biases::add(decoder, file);
    for (name, shape) in decoder.tensors() {
        file.tensor(&name, &shape)?;
    }
    unused::check(file, decoder, reads)
}

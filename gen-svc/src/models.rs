//! The interface of a model, and the list of architectures.

use tandem_kernels::{IsaLevel, Kernels};

use crate::cache::BlockId;
use crate::error::Error;
use crate::weights::{ModelFile, TorchTarget};

mod config;
mod cpu;
pub mod decoder;
mod gemma2;
mod gemma3;
mod granite;
mod llama;
mod mistral;
mod phi3;
mod qwen2;
mod qwen3;
mod qwen3_moe;
mod rope;
mod smollm3;
mod torch;
mod windows;

use config::Config;
use cpu::CpuDecoder;
pub use cpu::Precision;
use decoder::Decoder;
use torch::TorchDecoder;

/// A causal language model, with the KV cache of all sequences.
pub trait Model: std::fmt::Debug + Send {
    /// Returns the model's sizes.
    fn shape(&self) -> ModelShape;

    /// Allocates `blocks` blocks of the KV cache. Called once, before the first step.
    ///
    /// # Errors
    /// There is not that much memory.
    fn allocate(&mut self, blocks: u32) -> Result<(), Error>;

    /// Computes the chunks independently of each other. Writes their keys and values into their
    /// blocks, and the requested rows into `logits`, in order.
    ///
    /// Preconditions: every token is below the vocabulary's size, and a chunk's blocks have room
    /// for all its positions.
    ///
    /// # Errors
    /// The backend's. The chunks' blocks are then undefined from `past` on.
    fn forward(&mut self, chunks: &[SequenceChunk<'_>], logits: &mut Logits) -> Result<(), Error>;
}

/// The sizes of a model.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ModelShape {
    /// The size of the vocabulary. Token ids are below it.
    pub vocabulary: usize,
    /// The most positions of a sequence.
    pub context: usize,
    /// The bytes of one block: keys and values of [`BLOCK`](crate::cache::BLOCK) positions in all
    /// layers.
    pub block_bytes: u64,
}

/// The next tokens of one sequence.
#[derive(Debug, Clone, Copy)]
pub struct SequenceChunk<'a> {
    /// The tokens, at least one.
    pub tokens: &'a [u32],
    /// Positions before the tokens, whose keys and values are computed.
    pub past: usize,
    /// The sequence's blocks in the KV cache.
    pub blocks: &'a [BlockId],
    /// The tokens whose logits are requested.
    pub logits: LogitsFor,
}

/// The tokens of a chunk whose logits are requested.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LogitsFor {
    /// No token: more of the prompt follows.
    Nothing,
    /// The last token.
    Last,
    /// Every token.
    All,
}

impl SequenceChunk<'_> {
    /// Returns the indices of the tokens whose logits are requested.
    #[must_use]
    pub fn logit_rows(&self) -> std::ops::Range<usize> {
        let end = self.tokens.len();
        match self.logits {
            LogitsFor::Nothing => end..end,
            LogitsFor::Last => end - 1..end,
            LogitsFor::All => 0..end,
        }
    }
}

/// Logits, row by row: one number for each token of the vocabulary.
#[derive(Debug, Default)]
pub struct Logits {
    values: Vec<f32>,
    vocabulary: usize,
}

impl Logits {
    /// Resizes to `rows` rows, and returns them to be written.
    pub fn resize(&mut self, rows: usize, vocabulary: usize) -> &mut [f32] {
        self.vocabulary = vocabulary;
        self.values.resize(rows * vocabulary, 0.0);
        &mut self.values
    }

    /// Returns the rows in order.
    pub fn rows(&mut self) -> impl Iterator<Item = &mut [f32]> {
        self.values.chunks_exact_mut(self.vocabulary.max(1))
    }
}

/// The backend that computes a model.
#[derive(Debug, Clone, Copy)]
pub enum Backend {
    /// libtorch, on any device.
    Torch(TorchTarget),
    /// The kernels of this project, on the CPU.
    Cpu {
        /// The precision of the weights.
        precision: Precision,
        /// Compute threads.
        threads: usize,
    },
}

/// An architecture, by its `model_type`.
struct Architecture {
    name: &'static str,
    describe: fn(&Config<'_>) -> Result<Decoder, Error>,
}

const ARCHITECTURES: &[Architecture] = &[
    Architecture { name: "llama", describe: llama::describe },
    Architecture { name: "mistral", describe: mistral::describe },
    Architecture { name: "qwen2", describe: qwen2::describe },
    Architecture { name: "qwen3", describe: qwen3::describe },
    Architecture { name: "qwen3_moe", describe: qwen3_moe::describe },
    Architecture { name: "gemma2", describe: gemma2::describe },
    Architecture { name: "gemma3", describe: gemma3::describe },
    Architecture { name: "gemma3_text", describe: gemma3::describe },
    Architecture { name: "phi3", describe: phi3::describe },
    Architecture { name: "granite", describe: granite::describe },
    Architecture { name: "smollm3", describe: smollm3::describe },
];

/// Describes the model in `file`, and checks that the file has every tensor in its shape. Nothing
/// large is allocated, so that invented sizes in a config cause an error only.
///
/// # Errors
/// The architecture or one of its settings is not supported, or a tensor is missing or misshapen.
pub fn describe(file: &ModelFile) -> Result<Decoder, Error> {
    let found = file.architecture();
    let architecture = ARCHITECTURES.iter().find(|architecture| architecture.name == found);
    let architecture = architecture.ok_or_else(|| Error::UnsupportedArchitecture {
        found: found.to_owned(),
        supported: ARCHITECTURES.iter().map(|architecture| architecture.name).collect::<Vec<_>>().join(", "),
    })?;
    let decoder = (architecture.describe)(&Config::new(file.config()))?;
    for (name, shape) in decoder.tensors() {
        file.tensor(&name, &shape)?;
    }
    Ok(decoder)
}

/// Returns the bytes that the weights of the described model take once they are loaded.
///
/// # Errors
/// As [`describe`].
pub fn weight_bytes(file: &ModelFile, decoder: &Decoder, backend: Backend) -> Result<u64, Error> {
    let bits = match backend {
        Backend::Torch(target) => 8 * target.dtype.elt_size_in_bytes() as u64,
        Backend::Cpu { precision: Precision::F32, .. } => 32,
        Backend::Cpu { precision: Precision::Bf16, .. } => 16,
        Backend::Cpu { precision: Precision::Int8, .. } => 9,
        Backend::Cpu { precision: Precision::Int4, .. } => 5,
        Backend::Cpu { precision: Precision::Keep, .. } => return kept_bytes(file, decoder),
    };
    Ok(decoder.numbers().saturating_mul(bits) / 8)
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

/// Loads the described model. libtorch computes what the kernels do not support.
///
/// # Errors
/// A tensor cannot be read, there is no memory, or libtorch fails.
pub fn load(file: &ModelFile, decoder: Decoder, backend: Backend) -> Result<Box<dyn Model>, Error> {
    Ok(match backend {
        Backend::Cpu { precision, threads } if CpuDecoder::can_compute(&decoder) => {
            let kernels = Kernels::new(threads, IsaLevel::detect());
            Box::new(CpuDecoder::load(decoder, file, kernels, precision)?)
        }
        Backend::Cpu { .. } => Box::new(TorchDecoder::load(decoder, file, TorchTarget::REFERENCE)?),
        Backend::Torch(target) => Box::new(TorchDecoder::load(decoder, file, target)?),
    })
}

//! What the engine asks of a model, and the architectures there are.

use tandem_kernels::{IsaLevel, Kernels};

use crate::cache::BlockId;
use crate::error::Error;
use crate::weights::{ModelFile, Placement};

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

/// A causal language model, with the memory of the keys and values of all sequences.
pub trait Model: std::fmt::Debug + Send {
    /// What it needs and what it can do.
    fn shape(&self) -> ModelShape;

    /// Makes room for `blocks` blocks of keys and values. To be called once, before anything is computed.
    ///
    /// # Errors
    /// There is not that much memory.
    fn allocate(&mut self, blocks: u32) -> Result<(), Error>;

    /// Computes the runs, each by itself: writes their keys and values into their blocks, and the wanted rows into `logits`, in order.
    ///
    /// Preconditions: every token is below the vocabulary's size, and a run's blocks have room for all its positions.
    ///
    /// # Errors
    /// The device's. What the runs' blocks hold from their `past` on is then of no more use.
    fn forward(&mut self, runs: &[Run<'_>], logits: &mut Logits) -> Result<(), Error>;
}

/// What a model needs and what it can do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ModelShape {
    /// Tokens are below this.
    pub vocabulary: usize,
    /// Positions of a sequence at most.
    pub context: usize,
    /// Memory of one block: the keys and values of [`BLOCK`](crate::cache::BLOCK) positions in all layers.
    pub block_bytes: u64,
}

/// The next tokens of one sequence.
#[derive(Debug, Clone, Copy)]
pub struct Run<'a> {
    /// At least one.
    pub tokens: &'a [u32],
    /// Positions before them, whose keys and values are there.
    pub past: usize,
    /// Where the sequence's keys and values lie.
    pub blocks: &'a [BlockId],
    /// Which logits are wanted.
    pub wanted: Wanted,
}

/// Which of a run's tokens are to be followed by logits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Wanted {
    /// None: there is more of the prompt to come.
    Nothing,
    /// The last.
    Last,
    /// Each.
    All,
}

impl Run<'_> {
    /// Which of the run's tokens, by index.
    #[must_use]
    pub fn wanted(&self) -> std::ops::Range<usize> {
        let end = self.tokens.len();
        match self.wanted {
            Wanted::Nothing => end..end,
            Wanted::Last => end - 1..end,
            Wanted::All => 0..end,
        }
    }
}

/// What may come next, not normalized: a number for each token of the vocabulary, row by row.
#[derive(Debug, Default)]
pub struct Logits {
    values: Vec<f32>,
    vocabulary: usize,
}

impl Logits {
    /// Makes room for `rows` rows, and gives it to be written.
    pub fn resize(&mut self, rows: usize, vocabulary: usize) -> &mut [f32] {
        self.vocabulary = vocabulary;
        self.values.resize(rows * vocabulary, 0.0);
        &mut self.values
    }

    /// One row after another.
    pub fn rows(&mut self) -> impl Iterator<Item = &mut [f32]> {
        self.values.chunks_exact_mut(self.vocabulary.max(1))
    }
}

/// What computes a model.
#[derive(Debug, Clone, Copy)]
pub enum Runtime {
    /// libtorch, on any device.
    Torch(Placement),
    /// Kernels of our own, on the CPU.
    Cpu {
        /// Of the weights.
        precision: Precision,
        /// That compute.
        threads: usize,
    },
}

/// An architecture, by the name that `model_type` gives it.
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

/// Describes the model in `file`, and checks that the file has every tensor of the description, in its shape. Nothing large is
/// allocated: sizes that a config makes up cost an error.
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

/// Bytes that the weights of the model in `file` take once they are loaded.
///
/// # Errors
/// As [`describe`].
pub fn weight_bytes(file: &ModelFile, runtime: Runtime) -> Result<u64, Error> {
    let decoder = describe(file)?;
    let bits = match runtime {
        Runtime::Torch(placement) => 8 * placement.dtype.elt_size_in_bytes() as u64,
        Runtime::Cpu { precision: Precision::F32, .. } => 32,
        Runtime::Cpu { precision: Precision::Bf16, .. } => 16,
        Runtime::Cpu { precision: Precision::Int8, .. } => 9,
        Runtime::Cpu { precision: Precision::Int4, .. } => 5,
        Runtime::Cpu { precision: Precision::Keep, .. } => return kept_bytes(file, &decoder),
    };
    Ok(decoder.numbers().saturating_mul(bits) / 8)
}

/// Blocks are kept as they are, and everything else becomes 32-bit floats.
fn kept_bytes(file: &ModelFile, decoder: &Decoder) -> Result<u64, Error> {
    let mut bytes: u64 = 0;
    for (name, shape) in decoder.tensors() {
        let stored = file.tensor(&name, &shape)?;
        let floats = 4 * shape.iter().product::<usize>();
        bytes += if stored.is_float() { floats } else { stored.bytes.len() } as u64;
    }
    Ok(bytes)
}

/// Loads the model in `file`. What the kernels cannot compute is left to libtorch.
///
/// # Errors
/// As [`describe`], there is no memory, or libtorch's.
pub fn load(file: &ModelFile, runtime: Runtime) -> Result<Box<dyn Model>, Error> {
    let decoder = describe(file)?;
    Ok(match runtime {
        Runtime::Cpu { precision, threads } if CpuDecoder::can_compute(&decoder) => {
            let kernels = Kernels::new(threads, IsaLevel::detect());
            Box::new(CpuDecoder::load(decoder, file, kernels, precision)?)
        }
        Runtime::Cpu { .. } => Box::new(TorchDecoder::load(decoder, file, Placement::REFERENCE)?),
        Runtime::Torch(placement) => Box::new(TorchDecoder::load(decoder, file, placement)?),
    })
}

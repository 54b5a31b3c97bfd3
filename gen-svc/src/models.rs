//! What the engine asks of a model, and the architectures there are.

use serde_json::Value;

use crate::cache::BlockId;
use crate::error::Error;
use crate::weights::{ModelFile, Placement, Weights};

pub mod llama;

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

/// Reads a model's config and tensors.
type Load = fn(&Value, &Weights<'_>) -> Result<Box<dyn Model>, Error>;

/// An implementation, by the name that `model_type` and `general.architecture` give it.
struct Architecture {
    name: &'static str,
    load: Load,
}

const ARCHITECTURES: &[Architecture] = &[Architecture { name: "llama", load: llama::load }];

/// Loads the model in `file` with its registered implementation.
///
/// # Errors
/// The architecture or one of its settings is not supported, or a tensor is missing or misshapen.
pub fn load(file: &ModelFile, placement: Placement) -> Result<Box<dyn Model>, Error> {
    let found = file.architecture();
    let architecture = ARCHITECTURES.iter().find(|architecture| architecture.name == found);
    let architecture = architecture.ok_or_else(|| Error::UnsupportedArchitecture {
        found: found.to_owned(),
        supported: ARCHITECTURES.iter().map(|architecture| architecture.name).collect::<Vec<_>>().join(", "),
    })?;
    (architecture.load)(file.config(), &Weights::new(file, placement))
}

/// Refuses a setting that has a value other than `supported`. Missing and null pass.
fn require(config: &Value, setting: &'static str, supported: &Value) -> Result<(), Error> {
    match &config[setting] {
        Value::Null => Ok(()),
        value if value == supported => Ok(()),
        value => Err(Error::UnsupportedSetting { setting, value: value.to_string() }),
    }
}

/// Refuses a size that no real model has, before anything is computed from it.
fn require_size(setting: &'static str, value: i64) -> Result<(), Error> {
    const LARGEST: i64 = 1 << 24;
    if (1..=LARGEST).contains(&value) {
        return Ok(());
    }
    Err(Error::UnsupportedSetting { setting, value: value.to_string() })
}

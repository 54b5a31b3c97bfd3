//! The interface of a model to the engine.

use crate::cache::BlockId;
use crate::error::Error;

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

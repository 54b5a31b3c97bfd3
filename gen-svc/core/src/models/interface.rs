//! Models that compute rows of logits on the host, and the chunks of a step.

use std::ops::Range;

use crate::cache::{BlockCopy, BlockId, CacheSize, ChunkStates};
use crate::error::StepError;

/// A causal language model whose rows of logits are on the host, with the KV cache of all sequences.
pub trait Model: std::fmt::Debug + Send {
    /// Returns the model's sizes.
    fn shape(&self) -> ModelShape;

    /// Returns the bytes of the weights in this process's memory, as they are packed. None if the library that holds
    /// them does not say it.
    fn weight_bytes(&self) -> Option<u64> {
        None
    }

    /// Allocates the KV cache and the slots of recurrent states, in place of earlier ones. Called before the first
    /// step.
    ///
    /// # Errors
    /// There is not that much memory.
    fn allocate(&mut self, size: CacheSize) -> Result<(), StepError>;

    /// Computes the chunks independently of each other. Writes their keys and values into their
    /// blocks, and the requested rows into `logits`, in order.
    ///
    /// Preconditions: every token is below the vocabulary's size, and a chunk's blocks have room
    /// for all its positions. The rows of an image have the model's hidden size, and end within the
    /// chunk.
    ///
    /// # Errors
    /// The model's. The chunks' blocks are then undefined from `past` on, and so are the states that they write.
    fn forward(&mut self, chunks: &[SequenceChunk<'_>], logits: &mut Logits) -> Result<(), StepError>;

    /// Returns the most tokens of a sequence that is not [long](SequenceChunk::is_long). `None`: all sequences
    /// are computed alike.
    fn long_after(&self) -> Option<usize> {
        None
    }

    /// Returns memory that the model keeps for later calls.
    fn free_cache(&mut self) {}
}

/// The sizes of a model.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ModelShape {
    /// The size of the vocabulary. Token ids are below it.
    pub vocabulary: usize,
    /// The most positions of a sequence.
    pub context: usize,
    /// The positions of one block, a multiple of [`BLOCK`](crate::cache::BLOCK).
    pub block: usize,
    /// The bytes of one block: keys and values of its positions in all layers.
    pub block_bytes: u64,
    /// The bytes of the recurrent states of a sequence in all layers. 0: the model has none.
    pub state_bytes: u64,
}

/// The part of a model on a device.
#[derive(Debug, Clone)]
pub struct DevicePart {
    /// The GPU. `None`: the CPU.
    pub gpu: Option<Gpu>,
    /// The number of layers there.
    pub layers: usize,
    /// The bytes of one block: keys and values of its positions in these layers.
    pub block_bytes: u64,
}

/// A GPU.
#[derive(Debug, Clone)]
pub struct Gpu {
    /// The number of the GPU in this process.
    pub index: usize,
    /// The name. Empty if the driver does not report it.
    pub name: String,
    /// Returns the current memory of the GPU with this index, if it is known.
    pub memory: fn(usize) -> Option<DeviceMemory>,
}

impl Gpu {
    /// Returns the current memory. None if it is unknown.
    #[must_use]
    pub fn memory(&self) -> Option<DeviceMemory> {
        (self.memory)(self.index)
    }
}

/// The memory of a GPU, in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DeviceMemory {
    /// The bytes that no process has.
    pub free: u64,
    /// All bytes.
    pub total: u64,
}

/// The next tokens of one sequence.
#[derive(Debug, Clone, Copy)]
pub struct SequenceChunk<'a> {
    /// The tokens, at least one.
    pub tokens: &'a [u32],
    /// The index of the plan that draws the last token in the step before, if only the backend has the
    /// token.
    pub chosen: Option<usize>,
    /// The number of tokens after these that the backend drafts. The blocks have room for them, and the row
    /// of each follows those of the chunk.
    pub drafted: usize,
    /// Positions before the tokens, whose keys and values are computed.
    pub past: usize,
    /// True if all positions of the sequence are rotated as those of a long one. The keys of its blocks are too.
    pub is_long: bool,
    /// The sequence's blocks in the KV cache.
    pub blocks: &'a [BlockId],
    /// A copy within the KV cache that precedes the computation. `None` in models whose blocks have
    /// one part.
    pub copy: Option<BlockCopy>,
    /// The recurrent states. `None` in models that have none.
    pub states: Option<ChunkStates<'a>>,
    /// The tokens whose logits are requested.
    pub logits: LogitsFor,
    /// The image tokens among `tokens`, in order and disjoint.
    pub images: &'a [ImageRows<'a>],
    /// The positions of the tokens on the axes time, height and width, for models that distinguish
    /// them. `None`: `past + i` on every axis.
    pub positions: Option<&'a [[u32; 3]]>,
}

/// Consecutive image tokens of a chunk, and their features.
#[derive(Debug, Clone)]
pub struct ImageRows<'a> {
    /// The index of the first image token in [`SequenceChunk::tokens`].
    pub start: usize,
    /// `[n, E]`. The rows replace the embeddings of the n tokens, after the factor of embeddings.
    pub rows: &'a [f32],
    /// Number i is `[n, E]`. It is added to the hidden rows of the tokens after layer i.
    pub deep: Vec<&'a [f32]>,
    /// The positions in the sequence of the image tokens that attend to each other, in models that
    /// have such blocks. The chunk contains all of them.
    pub block: Range<usize>,
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

impl LogitsFor {
    /// Returns the indices of the tokens whose logits are requested, of a chunk of `count` tokens.
    #[must_use]
    pub fn of(self, count: usize) -> Range<usize> {
        match self {
            Self::Nothing => count..count,
            Self::Last => count - 1..count,
            Self::All => 0..count,
        }
    }
}

impl SequenceChunk<'_> {
    /// Returns the indices of the tokens whose logits are requested.
    #[must_use]
    pub fn logit_rows(&self) -> Range<usize> {
        self.logits.of(self.tokens.len())
    }

    /// Returns the positions of each token on the axes time, height and width.
    pub fn axes(&self) -> impl Iterator<Item = [usize; 3]> {
        let given = |i: usize| self.positions.map(|positions| positions[i].map(|position| position as usize));
        (0..self.tokens.len()).map(move |i| given(i).unwrap_or([self.past + i; 3]))
    }

    /// Returns for each token the end of the positions that it attends to, if the tokens of an image
    /// attend to each other.
    pub fn ends(&self) -> impl Iterator<Item = usize> {
        let sequence = self.past..self.past + self.tokens.len();
        debug_assert!(
            self.images.iter().all(|image| sequence.start <= image.block.start && image.block.end <= sequence.end),
            "a chunk contains whole image blocks"
        );
        sequence.map(|position| {
            let block = self.images.iter().map(|image| &image.block).find(|block| block.contains(&position));
            block.map_or(position + 1, |block| block.end)
        })
    }
}

impl ImageRows<'_> {
    /// Returns the indexes of the tokens, for rows of `width` numbers.
    pub fn tokens(&self, width: usize) -> Range<usize> {
        self.start..self.start + self.rows.len() / width
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

    /// Returns a row.
    ///
    /// # Panics
    /// Panics if there are not as many rows.
    pub fn row(&mut self, index: usize) -> &mut [f32] {
        &mut self.values[index * self.vocabulary..][..self.vocabulary]
    }

    /// Returns the rows in order.
    pub fn rows(&mut self) -> impl Iterator<Item = &mut [f32]> {
        self.values.chunks_exact_mut(self.vocabulary.max(1))
    }
}

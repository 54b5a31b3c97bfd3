//! Keys and values in blocks, as tensors. They are written and read by position, for the chunks of
//! one call.
//!
//! Shapes: T tokens of a call, K key/value heads, H query heads, D head size. The slot of a position is
//! block * positions of a block + position in the block.

use std::ops::Range;

use tandem_core::cache::{BlockCopy, BlockId};
use tandem_core::models::SequenceChunk;
use tandem_core::models::decoder::{self, Pairs};
use tch::Tensor;

use super::attend::{PagedAttention, Scores};
use crate::error::Error;
use crate::target::TorchTarget;

/// The shape of the keys and values of some layers.
#[derive(Debug)]
pub(super) struct KvShape {
    /// K and D of each layer. Zeros: the layer uses the keys and values of another layer.
    layers: Vec<[i64; 2]>,
    /// The positions of a block.
    block: usize,
    target: TorchTarget,
}

impl KvShape {
    /// Returns the shape of layers, in blocks of `block` positions.
    pub(super) fn of(layers: &[decoder::Layer], block: usize, target: TorchTarget) -> Self {
        let sizes = |layer: &decoder::Layer| match layer.attention() {
            Some(attention) if !matches!(attention.pairs, Pairs::Shared(_)) => {
                [attention.kv_heads as i64, attention.head_size as i64]
            }
            _ => [0, 0],
        };
        Self { layers: layers.iter().map(sizes).collect(), block, target }
    }
}

/// The keys and values of all sequences, in some layers.
#[derive(Debug)]
pub(super) struct PagedKv {
    shape: KvShape,
    /// `[slots, 2, K, D]` for each layer: key and value of a position are adjacent, so that one call
    /// reads both.
    layers: Vec<Tensor>,
}

impl PagedKv {
    /// Creates an empty cache.
    pub(super) fn new(shape: KvShape) -> Self {
        Self { shape, layers: Vec::new() }
    }

    /// Returns the bytes of one block in all of the layers.
    pub(super) fn block_bytes(&self) -> u64 {
        let KvShape { layers, block, target } = &self.shape;
        let numbers: i64 = layers.iter().map(|[heads, size]| 2 * heads * size).sum();
        *block as u64 * numbers as u64 * target.dtype.elt_size_in_bytes() as u64
    }

    /// Allocates blocks. The operating system provides the memory on the first write.
    pub(super) fn allocate(&mut self, blocks: u32) -> Result<(), Error> {
        let KvShape { layers, block, target } = &self.shape;
        let slots = i64::from(blocks) * *block as i64;
        let layer = |&[heads, size]: &[i64; 2]| Tensor::f_empty([slots, 2, heads, size], (target.dtype, target.device));
        self.layers = layers.iter().map(layer).collect::<Result<_, _>>()?;
        Ok(())
    }

    /// Copies the slots `from` to the slots `to`, in all layers.
    pub(super) fn copy(&self, [from, to]: [&Tensor; 2]) -> Result<(), Error> {
        for layer in self.layers.iter().filter(|layer| layer.numel() > 0) {
            drop(layer.shallow_clone().f_index_copy_(0, to, &layer.f_index_select(0, from)?)?);
        }
        Ok(())
    }

    /// Writes `[T, K, D]` keys and values of a layer to slots, `[T]`.
    pub(super) fn write(&self, layer: usize, slots: &Tensor, keys: &Tensor, values: &Tensor) -> Result<(), Error> {
        for (part, numbers) in [keys, values].into_iter().enumerate() {
            drop(self.layers[layer].f_select(1, part as i64)?.f_index_copy_(0, slots, numbers)?);
        }
        Ok(())
    }

    /// Computes attention of a call's tokens: `[T, H, D] -> [T, H * D]`
    pub(super) fn attend(
        &self,
        layer: usize,
        attention: &dyn PagedAttention,
        queries: &Tensor,
        scale: f64,
    ) -> Result<Tensor, Error> {
        let scores = Scores { scale, with_log_sums: false };
        Ok(attention.attend(queries, &self.layers[layer], scores)?.rows)
    }
}

/// Returns the slots of the first positions of a block that are copied. Blocks have `positions` positions.
pub(super) fn copied_slots(block: BlockId, copy: BlockCopy, positions: usize) -> Range<i64> {
    let first = i64::from(block.0) * positions as i64;
    first..first + copy.positions as i64
}

/// Returns the slots of positions of a sequence whose blocks have `block` positions.
pub(super) fn slots<'a>(
    chunk: &SequenceChunk<'a>,
    positions: Range<usize>,
    block: usize,
) -> impl Iterator<Item = i64> + use<'a> {
    let blocks = chunk.blocks;
    positions.map(move |position| (blocks[position / block].0 as usize * block + position % block) as i64)
}

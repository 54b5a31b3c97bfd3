//! Keys and values in blocks, as tensors. They are written and read by position, for the chunks of
//! one call.
//!
//! Shapes: T tokens of a call, B sequences of a bucket, S positions of its longest, K key/value heads,
//! H query heads, D head size. The slot of a position is block * [`BLOCK`] + position in the block.

use tch::Tensor;

use super::bucket::View;
use super::runs::Runs;
use crate::cache::BLOCK;
use crate::error::Error;
use crate::models::decoder::{self, Decoder, Pairs};
use crate::weights::TorchTarget;

/// The shape of a model's keys and values.
#[derive(Debug)]
pub(super) struct KvShape {
    /// K and D of each layer. Zeros: the layer uses the keys and values of another layer.
    layers: Vec<[i64; 2]>,
    target: TorchTarget,
}

impl KvShape {
    /// Returns the shape of a model's layers.
    pub(super) fn of(decoder: &Decoder, target: TorchTarget) -> Self {
        let sizes = |layer: &decoder::Layer| match layer.attention.pairs {
            Pairs::Shared(_) => [0, 0],
            _ => [layer.attention.kv_heads as i64, layer.attention.head_size as i64],
        };
        Self { layers: decoder.layers.iter().map(sizes).collect(), target }
    }
}

/// The keys and values of all sequences.
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

    /// Returns the bytes of one block in all layers.
    pub(super) fn block_bytes(&self) -> u64 {
        let KvShape { layers, target } = &self.shape;
        let numbers: i64 = layers.iter().map(|[heads, size]| 2 * heads * size).sum();
        BLOCK as u64 * numbers as u64 * target.dtype.elt_size_in_bytes() as u64
    }

    /// Allocates blocks. The operating system provides the memory on the first write.
    pub(super) fn allocate(&mut self, blocks: u32) -> Result<(), Error> {
        let KvShape { layers, target } = &self.shape;
        let slots = i64::from(blocks) * BLOCK as i64;
        let layer = |&[heads, size]: &[i64; 2]| Tensor::f_empty([slots, 2, heads, size], (target.dtype, target.device));
        self.layers = layers.iter().map(layer).collect::<Result<_, _>>()?;
        Ok(())
    }

    /// Writes `[T, K, D]` keys and values of a layer to the chunks' slots.
    pub(super) fn write(&self, layer: usize, runs: &Runs, keys: &Tensor, values: &Tensor) -> Result<(), Error> {
        for (part, numbers) in [keys, values].into_iter().enumerate() {
            drop(self.layers[layer].f_select(1, part as i64)?.f_index_copy_(0, &runs.slots, numbers)?);
        }
        Ok(())
    }

    /// Computes attention, each chunk over its sequence: `[T, H, D] -> [T, H * D]`
    pub(super) fn attend(&self, layer: usize, runs: &Runs, queries: &Tensor, view: View) -> Result<Tensor, Error> {
        let attend = |bucket: &super::bucket::Bucket| {
            let pairs = self.layers[layer].f_index_select(0, &bucket.slots)?; // [B * S, 2, K, D]
            bucket.attend(queries, &pairs, view)
        };
        let mut attended: Vec<Tensor> = runs.buckets[view.reach].iter().map(attend).collect::<Result<_, _>>()?;
        match attended.len() {
            1 => Ok(attended.remove(0)),
            _ => Ok(Tensor::f_cat(&attended, 0)?),
        }
    }
}

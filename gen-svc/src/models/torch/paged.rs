//! Keys and values in blocks, as tensors. They are written and read by position, for the chunks of
//! one call.
//!
//! Shapes: T tokens of a call, L of one chunk, S positions in the chunk's window, K key/value
//! heads, H query heads, D head size. The slot of a position is block * [`BLOCK`] + position in the
//! block.

use tch::Tensor;

use super::seen::{Seen, View};
use crate::cache::BLOCK;
use crate::error::Error;
use crate::models::SequenceChunk;
use crate::models::decoder::Decoder;
use crate::weights::TorchTarget;

/// The shape of a model's keys and values.
#[derive(Debug, Clone, Copy)]
pub(super) struct KvShape {
    layers: usize,
    /// K.
    heads: i64,
    /// D.
    head_size: i64,
    target: TorchTarget,
}

impl KvShape {
    /// Returns the shape, which all layers of a model share.
    pub(super) fn of(decoder: &Decoder, target: TorchTarget) -> Self {
        let (heads, head_size) =
            decoder.layers.first().map_or((0, 0), |layer| (layer.attention.kv_heads, layer.attention.head_size));
        Self { layers: decoder.layers.len(), heads: heads as i64, head_size: head_size as i64, target }
    }
}

/// The keys and values of all sequences.
#[derive(Debug)]
pub(super) struct PagedKv {
    shape: KvShape,
    layers: Vec<Layer>,
}

/// `[slots, K, D]` each.
#[derive(Debug)]
struct Layer {
    keys: Tensor,
    values: Tensor,
}

impl PagedKv {
    /// Creates an empty cache.
    pub(super) fn new(shape: KvShape) -> Self {
        Self { shape, layers: Vec::new() }
    }

    /// Returns the bytes of one block in all layers.
    pub(super) fn block_bytes(&self) -> u64 {
        let KvShape { layers, heads, head_size, target } = self.shape;
        let numbers = 2 * layers as u64 * BLOCK as u64 * (heads * head_size) as u64;
        numbers * target.dtype.elt_size_in_bytes() as u64
    }

    /// Allocates blocks. The operating system provides the memory on the first write.
    pub(super) fn allocate(&mut self, blocks: u32) -> Result<(), Error> {
        let KvShape { layers, heads, head_size, target } = self.shape;
        let slots = i64::from(blocks) * BLOCK as i64;
        let empty = || Tensor::f_empty([slots, heads, head_size], (target.dtype, target.device));
        let layer = |_| Ok(Layer { keys: empty()?, values: empty()? });
        self.layers = (0..layers).map(layer).collect::<Result<_, Error>>()?;
        Ok(())
    }

    /// Writes `[T, K, D]` keys and values of a layer to the chunks' slots.
    pub(super) fn write(&self, layer: usize, runs: &Runs, keys: &Tensor, values: &Tensor) -> Result<(), Error> {
        let Layer { keys: all_keys, values: all_values } = &self.layers[layer];
        drop(all_keys.shallow_clone().f_index_copy_(0, &runs.slots, keys)?);
        drop(all_values.shallow_clone().f_index_copy_(0, &runs.slots, values)?);
        Ok(())
    }

    /// Computes attention, each chunk over its sequence: `[T, H, D] -> [T, H * D]`
    pub(super) fn attend(&self, layer: usize, runs: &Runs, queries: &Tensor, view: View) -> Result<Tensor, Error> {
        let Layer { keys, values } = &self.layers[layer];
        let mut start = 0;
        let mut attended = Vec::with_capacity(runs.runs.len());
        for run in &runs.runs {
            let seen = &run.seen[view.window];
            let of = |all: &Tensor| all.f_index_select(0, &seen.slots)?.f_transpose(0, 1); // [K, S, D]
            let queries = queries.f_narrow(0, start, run.length)?;
            attended.push(seen.attend(&queries, &of(keys)?, &of(values)?, view)?);
            start += run.length;
        }
        Ok(Tensor::f_cat(&attended, 0)?)
    }
}

/// The positions of the chunks of one call.
#[derive(Debug)]
pub(super) struct Runs {
    /// `[T]`, as numbers to compute with.
    positions: Tensor,
    /// `[T]`, the slots that are written.
    slots: Tensor,
    runs: Vec<Placed>,
}

/// The positions of one chunk.
#[derive(Debug)]
struct Placed {
    /// L.
    length: i64,
    /// The visible positions through each of the model's windows.
    seen: Vec<Seen>,
}

impl Runs {
    /// Computes the positions of chunks in a model with these windows.
    pub(super) fn new(
        chunks: &[SequenceChunk<'_>],
        windows: &[Option<i64>],
        target: TorchTarget,
    ) -> Result<Self, Error> {
        let mut positions: Vec<f32> = Vec::new();
        let mut slots: Vec<i64> = Vec::new();
        let mut placed = Vec::with_capacity(chunks.len());
        for chunk in chunks {
            let sequence: Vec<i64> =
                (0..chunk.past + chunk.tokens.len()).map(|position| slot(chunk, position)).collect();
            positions.extend((chunk.past..sequence.len()).map(|position| position as f32));
            slots.extend(&sequence[chunk.past..]);
            let (past, length) = (chunk.past as i64, chunk.tokens.len() as i64);
            let sequence = Tensor::f_from_slice(&sequence)?.f_to_device(target.device)?;
            let seen = windows.iter().map(|&window| Seen::new(&sequence, past, length, window, target));
            placed.push(Placed { length, seen: seen.collect::<Result<_, _>>()? });
        }
        Ok(Self {
            positions: Tensor::f_from_slice(&positions)?.f_to_device(target.device)?,
            slots: Tensor::f_from_slice(&slots)?.f_to_device(target.device)?,
            runs: placed,
        })
    }

    /// `[T]`, as 32-bit floats.
    pub(super) fn positions(&self) -> &Tensor {
        &self.positions
    }
}

fn slot(chunk: &SequenceChunk<'_>, position: usize) -> i64 {
    let block = chunk.blocks[position / BLOCK];
    i64::from(block.0) * BLOCK as i64 + (position % BLOCK) as i64
}

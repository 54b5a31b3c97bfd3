//! Keys and values in blocks, as tensors. They are written and read by position, for the chunks of
//! one call.
//!
//! Shapes: T tokens of a call, L of one chunk, S positions in the chunk's window, K key/value
//! heads, H query heads, D head size. The slot of a position is block * [`BLOCK`] + position in the
//! block.

use tch::Tensor;

use super::seen::{Reach, Seen, View};
use crate::cache::BLOCK;
use crate::error::Error;
use crate::models::SequenceChunk;
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
        let KvShape { layers, target } = &self.shape;
        let numbers: i64 = layers.iter().map(|[heads, size]| 2 * heads * size).sum();
        BLOCK as u64 * numbers as u64 * target.dtype.elt_size_in_bytes() as u64
    }

    /// Allocates blocks. The operating system provides the memory on the first write.
    pub(super) fn allocate(&mut self, blocks: u32) -> Result<(), Error> {
        let KvShape { layers, target } = &self.shape;
        let slots = i64::from(blocks) * BLOCK as i64;
        let empty = |[heads, size]: [i64; 2]| Tensor::f_empty([slots, heads, size], (target.dtype, target.device));
        let layer = |sizes: &[i64; 2]| Ok(Layer { keys: empty(*sizes)?, values: empty(*sizes)? });
        self.layers = layers.iter().map(layer).collect::<Result<_, Error>>()?;
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
            let seen = &run.seen[view.reach];
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
    /// `[T, 3]`, as numbers to compute with.
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
    /// The visible positions of each of the model's reaches.
    seen: Vec<Seen>,
}

impl Runs {
    /// Computes the positions of chunks in a model with these reaches.
    pub(super) fn new(chunks: &[SequenceChunk<'_>], reaches: &[Reach], target: TorchTarget) -> Result<Self, Error> {
        let mut positions: Vec<f32> = Vec::new();
        let mut slots: Vec<i64> = Vec::new();
        let mut placed = Vec::with_capacity(chunks.len());
        for chunk in chunks {
            let sequence: Vec<i64> =
                (0..chunk.past + chunk.tokens.len()).map(|position| slot(chunk, position)).collect();
            positions.extend(chunk.axes().flatten().map(|position| position as f32));
            slots.extend(&sequence[chunk.past..]);
            let sequence = Tensor::f_from_slice(&sequence)?.f_to_device(target.device)?;
            let seen = reaches.iter().map(|reach| Seen::new(&sequence, chunk, *reach, target));
            placed.push(Placed { length: chunk.tokens.len() as i64, seen: seen.collect::<Result<_, _>>()? });
        }
        Ok(Self {
            positions: Tensor::f_from_slice(&positions)?.f_view([-1, 3])?.f_to_device(target.device)?,
            slots: Tensor::f_from_slice(&slots)?.f_to_device(target.device)?,
            runs: placed,
        })
    }

    /// `[T, 3]`, as 32-bit floats.
    pub(super) fn positions(&self) -> &Tensor {
        &self.positions
    }
}

fn slot(chunk: &SequenceChunk<'_>, position: usize) -> i64 {
    let block = chunk.blocks[position / BLOCK];
    i64::from(block.0) * BLOCK as i64 + (position % BLOCK) as i64
}

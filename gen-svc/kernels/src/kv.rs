//! The KV cache: keys and values of all sequences, in blocks of 16 positions that the caller
//! assigns.
//!
//! A block of a layer holds, for every head, 16 keys as \[head_dim\]\[16 positions\], so that one
//! vector contains one element of sixteen keys. The values of every head follow as \[16
//! positions\]\[head_dim\]. In bf16, two numbers that are multiplied together form a pair: keys are
//! \[head_dim / 2\]\[16 positions\]\[2 elements\], values \[8\]\[head_dim\]\[2 positions\]. The system
//! commits memory when a block is first written: at least a page, of up to 2 MiB, in each layer.

use std::marker::PhantomData;

use crate::buffer::{Buffer, Plain};
use crate::clock;
use crate::disjoint::Disjoint;
use crate::element::{Bf16, F16, F32, WritableElement};
use crate::error::{Error, expect, expect_below, expect_multiple, product};
use crate::isa::{Isa, Kernel, LANES};
use crate::kernels::Kernels;

/// Positions of a block.
pub const POSITIONS: usize = 16;

/// The storage format of keys and values.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum KvFormat {
    F32,
    /// Rounded to nearest.
    F16,
    /// Rounded to nearest. Numbers below 2^-55 in magnitude are zero. Attention rounds queries and softmax
    /// weights in the same way, and is faster than with the other formats.
    Bf16,
}

impl KvFormat {
    fn bytes(self) -> usize {
        if self == Self::F32 { 4 } else { 2 }
    }
}

/// The sizes of a store.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct KvShape {
    pub layers: usize,
    pub blocks: usize,
    pub heads: usize,
    /// Head dimension: a multiple of 8.
    pub head_dim: usize,
    pub format: KvFormat,
}

impl KvShape {
    /// Returns the size in bytes of one block in all layers.
    pub fn block_bytes(&self) -> Result<usize, Error> {
        expect_multiple("head dimension", LANES, self.head_dim)?;
        product(&[self.layers, 2, self.heads, POSITIONS, self.head_dim, self.format.bytes()])
    }

    /// Returns the number of elements of one head's keys in a block. The head's values have the
    /// same number.
    fn tile(&self) -> usize {
        POSITIONS * self.head_dim
    }

    /// Returns the offset of one head's keys or values, in elements.
    fn start(&self, layer: usize, block: usize, part: Part, head: usize) -> usize {
        (((layer * self.blocks + block) * 2 + part as usize) * self.heads + head) * self.tile()
    }
}

#[derive(Clone, Copy)]
pub(crate) enum Part {
    Keys,
    Values,
}

/// Consecutive tokens of one sequence, and the blocks of the sequence.
#[derive(Debug, Clone, Copy)]
pub struct KvRun<'a> {
    /// Positions before the first token.
    pub past: usize,
    /// Number of tokens.
    pub length: usize,
    /// The sequence's blocks, from its first position up to at least the last token.
    pub blocks: &'a [u32],
}

/// The memory of keys and values.
#[derive(Debug)]
pub struct KvStore {
    shape: KvShape,
    buffer: Buffer,
}

impl KvStore {
    /// Reserves memory. The system commits a page, of up to 2 MiB, when it is first written.
    pub fn new(shape: KvShape) -> Result<Self, Error> {
        let bytes = product(&[shape.block_bytes()?, shape.blocks])?;
        Ok(Self { shape, buffer: Buffer::zeroed(bytes)? })
    }

    #[must_use]
    pub fn shape(&self) -> &KvShape {
        &self.shape
    }

    /// Returns one head's keys or values in a block, as numbers or as pairs of these.
    #[inline(always)]
    pub(crate) fn tile<T: Plain>(&self, layer: usize, block: u32, part: Part, head: usize) -> &[T] {
        let start = self.shape.start(layer, block as usize, part, head);
        let per_lane = size_of::<T>() / self.shape.format.bytes();
        &self.buffer.as_slice()[start / per_lane..][..self.shape.tile() / per_lane]
    }

    /// Fails if a run exceeds the store, or if the runs' total length is not `tokens`.
    pub(crate) fn check(&self, layer: usize, runs: &[KvRun<'_>], tokens: usize) -> Result<(), Error> {
        expect_below("layer", self.shape.layers, layer)?;
        expect("tokens of all runs", tokens, runs.iter().map(|run| run.length).fold(0, usize::saturating_add))?;
        runs.iter().try_for_each(|run| self.check_run(run))
    }

    fn check_run(&self, run: &KvRun<'_>) -> Result<(), Error> {
        let positions = run.past.saturating_add(run.length);
        expect_below("position", run.blocks.len() * POSITIONS + 1, positions)?;
        run.blocks.iter().try_for_each(|block| expect_below("block", self.shape.blocks, *block as usize))
    }
}

/// Keys and values of tokens in one layer.
#[derive(Debug, Clone, Copy)]
pub struct KeysValues<'a> {
    pub layer: usize,
    /// \[tokens\]\[heads\]\[head_dim\].
    pub keys: &'a [f32],
    /// \[tokens\]\[heads\]\[head_dim\].
    pub values: &'a [f32],
}

impl Kernels {
    /// Writes the keys and values of the tokens of `runs`, in the order of the runs, to the tokens'
    /// positions.
    pub fn write(&self, store: &mut KvStore, runs: &[KvRun<'_>], new: KeysValues<'_>) -> Result<(), Error> {
        let _running = self.time(clock::Part::Writing);
        let shape = store.shape;
        let columns = shape.heads * shape.head_dim;
        let tokens = runs.iter().map(|run| run.length).fold(0, usize::saturating_add);
        store.check(new.layer, runs, tokens)?;
        expect("keys", tokens.saturating_mul(columns), new.keys.len())?;
        expect("values", tokens.saturating_mul(columns), new.values.len())?;
        match shape.format {
            KvFormat::F32 => self.write_as::<F32>(store, runs, new),
            KvFormat::F16 => self.write_as::<F16>(store, runs, new),
            KvFormat::Bf16 => self.write_as::<Bf16>(store, runs, new),
        }
        Ok(())
    }

    /// Writes with one task per head, so that no two tasks write the same memory, even if runs
    /// share blocks.
    fn write_as<E: WritableElement>(&self, store: &mut KvStore, runs: &[KvRun<'_>], new: KeysValues<'_>) {
        let shape = store.shape;
        let memory = Disjoint::new(store.buffer.as_mut_slice::<E::Stored>());
        let write =
            |head| self.level.run(WriteHead::<E> { shape, memory: &memory, runs, new, head, element: PhantomData });
        self.team.run_serially_if(new.keys.len() < MIN_PARALLEL_KEYS, shape.heads, &write);
    }
}

/// The smallest count of numbers for which several threads are faster than one thread.
pub(crate) const MIN_PARALLEL_NUMBERS: usize = 8 << 10;
/// The same for numbers of keys, each of which is written to another cache line.
const MIN_PARALLEL_KEYS: usize = 1 << 10;

struct WriteHead<'a, E: WritableElement> {
    shape: KvShape,
    memory: &'a Disjoint<'a, E::Stored>,
    runs: &'a [KvRun<'a>],
    new: KeysValues<'a>,
    head: usize,
    element: PhantomData<E>,
}

impl<E: WritableElement> Kernel for WriteHead<'_, E> {
    type Output = ();

    #[inline(always)]
    fn run<I: Isa>(self, isa: I) {
        let (dim, columns) = (self.shape.head_dim, self.shape.heads * self.shape.head_dim);
        let mut rows = self.new.keys.chunks_exact(columns).zip(self.new.values.chunks_exact(columns));
        for run in self.runs {
            let positions = run.past..run.past + run.length;
            for (position, (keys, values)) in positions.zip(&mut rows) {
                let block = run.blocks[position / POSITIONS] as usize;
                let place = |part| self.shape.start(self.new.layer, block, part, self.head);
                let head = self.head * dim..(self.head + 1) * dim;
                // SAFETY: only this task accesses the tiles of its head, one at a time.
                let tile = unsafe { self.memory.slice(place(Part::Keys), self.shape.tile()) };
                write_key::<I, E>(isa, &keys[head.clone()], tile, position % POSITIONS);
                // SAFETY: as above.
                let tile = unsafe { self.memory.slice(place(Part::Values), self.shape.tile()) };
                write_value::<I, E>(isa, &values[head], tile, position % POSITIONS);
            }
        }
    }
}

/// Writes a key's elements to one position of the tile.
#[inline(always)]
fn write_key<I: Isa, E: WritableElement>(isa: I, key: &[f32], tile: &mut [E::Stored], position: usize) {
    let mut rows = tile.chunks_exact_mut(POSITIONS * E::PER_LANE);
    for key in key.as_chunks().0 {
        let mut stored = [E::ZERO; LANES];
        E::store(isa, isa.load(key), &mut stored);
        for (elements, row) in stored.chunks_exact(E::PER_LANE).zip(&mut rows) {
            row[position * E::PER_LANE..][..E::PER_LANE].copy_from_slice(elements);
        }
    }
}

/// Writes a value's elements to one position of the tile.
#[inline(always)]
fn write_value<I: Isa, E: WritableElement>(isa: I, value: &[f32], tile: &mut [E::Stored], position: usize) {
    let row = &mut tile[position / E::PER_LANE * E::PER_LANE * value.len()..][..E::PER_LANE * value.len()];
    for (value, lanes) in value.as_chunks().0.iter().zip(row.chunks_exact_mut(LANES * E::PER_LANE)) {
        let mut stored = [E::ZERO; LANES];
        E::store(isa, isa.load(value), &mut stored);
        for (element, lane) in stored.iter().zip(lanes.chunks_exact_mut(E::PER_LANE)) {
            lane[position % E::PER_LANE] = *element;
        }
    }
}

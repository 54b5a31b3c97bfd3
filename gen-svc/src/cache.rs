//! The keys and values of one sequence.

use tch::{Device, Kind, Tensor};

use crate::error::Error;

/// Positions in the first allocation. Later ones double, up to the context, so that copying costs little per token.
const FIRST: i64 = 256;

/// What a cache must hold for a model.
#[derive(Debug, Clone, Copy)]
pub struct CacheShape {
    /// Layers that have keys and values.
    pub layers: usize,
    /// K.
    pub heads: i64,
    /// D.
    pub head_size: i64,
    /// Positions at most.
    pub context: i64,
    /// Of keys and values.
    pub dtype: Kind,
    /// Where they lie.
    pub device: Device,
}

/// Keys and values of the tokens computed so far. Memory grows with the sequence and is freed when dropped.
#[derive(Debug)]
pub struct KvCache {
    shape: CacheShape,
    layers: Vec<Layer>,
    length: i64,
    capacity: i64,
}

/// `[K, capacity, D]` each.
#[derive(Debug)]
struct Layer {
    keys: Tensor,
    values: Tensor,
}

impl KvCache {
    /// An empty cache, without memory.
    #[must_use]
    pub fn new(shape: CacheShape) -> Self {
        Self { shape, layers: Vec::new(), length: 0, capacity: 0 }
    }

    /// Positions held.
    #[must_use]
    pub fn length(&self) -> i64 {
        self.length
    }

    /// Makes room for `more` positions. To be called once per forward pass, before any layer appends.
    ///
    /// # Errors
    /// libtorch's, when memory runs out.
    pub fn reserve(&mut self, more: i64) -> Result<(), Error> {
        let needed = self.length + more;
        assert!(needed <= self.shape.context, "callers keep within the context");
        if needed <= self.capacity {
            return Ok(());
        }
        let capacity = needed.max(2 * self.capacity).max(FIRST).min(self.shape.context);
        let larger = |layer: &Layer| layer.grown(&self.shape, self.length, capacity);
        self.layers = if self.layers.is_empty() {
            (0..self.shape.layers).map(|_| Layer::new(&self.shape, capacity)).collect::<Result<_, _>>()?
        } else {
            self.layers.iter().map(larger).collect::<Result<_, _>>()?
        };
        self.capacity = capacity;
        Ok(())
    }

    /// Writes `[L, K, D]` keys and values of a layer behind those held, and returns all: `[K, S, D]` each.
    ///
    /// # Errors
    /// libtorch's.
    pub fn append(&mut self, layer: usize, keys: &Tensor, values: &Tensor) -> Result<(Tensor, Tensor), Error> {
        let more = keys.size()[0];
        let layer = &self.layers[layer];
        let write = |held: &Tensor, new: &Tensor| -> Result<Tensor, Error> {
            held.f_narrow(1, self.length, more)?.f_copy_(&new.f_transpose(0, 1)?)?;
            Ok(held.f_narrow(1, 0, self.length + more)?)
        };
        Ok((write(&layer.keys, keys)?, write(&layer.values, values)?))
    }

    /// Counts `more` positions as held, once every layer has appended them.
    pub fn advance(&mut self, more: i64) {
        self.length += more;
    }
}

impl Layer {
    fn new(shape: &CacheShape, capacity: i64) -> Result<Self, Error> {
        let empty = || Tensor::f_empty([shape.heads, capacity, shape.head_size], (shape.dtype, shape.device));
        Ok(Self { keys: empty()?, values: empty()? })
    }

    /// A copy of the first `length` positions, with room for `capacity`.
    fn grown(&self, shape: &CacheShape, length: i64, capacity: i64) -> Result<Self, Error> {
        let larger = Self::new(shape, capacity)?;
        larger.keys.f_narrow(1, 0, length)?.f_copy_(&self.keys.f_narrow(1, 0, length)?)?;
        larger.values.f_narrow(1, 0, length)?.f_copy_(&self.values.f_narrow(1, 0, length)?)?;
        Ok(larger)
    }
}

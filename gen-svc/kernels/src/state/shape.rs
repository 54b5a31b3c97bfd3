//! The sizes of states.

use crate::error::{Error, expect_multiple, product, sum};
use crate::isa::{LANES, WIDE};

/// The sizes of a store.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StateShape {
    /// Layers of linear attention.
    pub layers: usize,
    pub slots: usize,
    /// K: inputs of the convolution per channel, at least 1.
    pub taps: usize,
    pub key_heads: usize,
    /// A multiple of the key heads.
    pub value_heads: usize,
    /// A multiple of 8.
    pub key_size: usize,
    /// A multiple of 8.
    pub value_size: usize,
}

/// Counts of numbers.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Sizes {
    /// Hk * Dk.
    pub(crate) keys: usize,
    /// Hv * Dv.
    pub(crate) values: usize,
    /// C.
    pub(crate) channels: usize,
    /// The stored rows of a layer's convolution, rounded up to a cache line.
    pub(super) rows: usize,
    /// A panel of a recurrent state.
    pub(super) panel: usize,
    /// A slot in one layer.
    pub(super) layer: usize,
}

impl StateShape {
    /// Returns the size in bytes of one slot in all layers.
    pub fn slot_bytes(&self) -> Result<usize, Error> {
        product(&[self.layers, self.sizes()?.layer, size_of::<f32>()])
    }

    /// Returns C, the columns of the convolution's input: queries, keys and values.
    pub fn channels(&self) -> Result<usize, Error> {
        Ok(self.sizes()?.channels)
    }

    pub(crate) fn sizes(&self) -> Result<Sizes, Error> {
        expect_multiple("taps", 1, self.taps)?;
        expect_multiple("key heads", 1, self.key_heads)?;
        expect_multiple("value heads", self.key_heads, self.value_heads)?;
        expect_multiple("key size", LANES, self.key_size)?;
        expect_multiple("value size", LANES, self.value_size)?;
        let (keys, values) =
            (product(&[self.key_heads, self.key_size])?, product(&[self.value_heads, self.value_size])?);
        let channels = sum(&[keys, keys, values])?;
        let rows = sum(&[product(&[self.taps - 1, channels])?, WIDE - 1])? / WIDE * WIDE;
        let panel = product(&[self.key_size, WIDE])?;
        let layer = sum(&[rows, product(&[self.value_heads, self.panels(), panel])?])?;
        Ok(Sizes { keys, values, channels, rows, panel, layer })
    }

    /// Returns the number of panels of a value head.
    pub(crate) fn panels(&self) -> usize {
        self.value_size.div_ceil(WIDE)
    }
}

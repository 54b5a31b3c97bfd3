//! A hash on which render services agree, also those of other versions and machines: they send equal
//! beginnings of prompts to the same replica.

use std::io;

/// The 64-bit FNV-1a hash of bytes, with the finalizer of SplitMix64: FNV alone leaves the high bits of short
/// inputs alike.
///
/// Source: <http://www.isthe.com/chongo/tech/comp/fnv/>, <https://prng.di.unimi.it/splitmix64.c>.
#[derive(Debug, Clone, Copy)]
pub struct AgreedHash(u64);

impl AgreedHash {
    /// The hash of nothing.
    pub const EMPTY: Self = Self(0xcbf2_9ce4_8422_2325);

    /// Adds bytes, after their number.
    #[must_use]
    pub fn bytes(self, bytes: &[u8]) -> Self {
        self.number(bytes.len() as u64).raw(bytes)
    }

    /// Adds a number, as eight bytes in little-endian order.
    #[must_use]
    pub fn number(self, number: u64) -> Self {
        self.raw(&number.to_le_bytes())
    }

    /// Returns the hash.
    #[must_use]
    pub const fn finish(self) -> u64 {
        let Self(mut hash) = self;
        hash = (hash ^ hash >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        hash = (hash ^ hash >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        hash ^ hash >> 31
    }

    fn raw(self, bytes: &[u8]) -> Self {
        let add = |hash: u64, byte: &u8| (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3);
        Self(bytes.iter().fold(self.0, add))
    }
}

/// Adds the written bytes, without their number.
impl io::Write for AgreedHash {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        *self = self.raw(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

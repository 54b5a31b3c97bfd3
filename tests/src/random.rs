//! Pseudorandom numbers. The same seed produces the same numbers.

/// Returns one number of SplitMix64 for a counter. The goldens' Python scripts compute the same
/// numbers. Source: Steele, Lea and Flood, "Fast splittable pseudorandom number generators", 2014.
#[must_use]
pub fn scramble(counter: u64) -> u64 {
    let z = counter.wrapping_add(SCRAMBLE_STEP);
    let z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

const SCRAMBLE_STEP: u64 = 0x9e37_79b9_7f4a_7c15;

/// A pseudorandom number generator that is good enough for tests, with the same output for the same
/// seed.
#[derive(Debug)]
pub struct Random(pub u64);

impl Random {
    /// Returns 64 random bits.
    pub fn bits(&mut self) -> u64 {
        let bits = scramble(self.0);
        self.0 = self.0.wrapping_add(SCRAMBLE_STEP);
        bits
    }

    /// Returns a number below `end`, nearly uniformly distributed.
    pub fn below(&mut self, end: u64) -> u64 {
        self.bits() % end
    }

    /// Returns a number within -1..1.
    pub fn float(&mut self) -> f32 {
        (self.bits() >> 40) as f32 / (1 << 23) as f32 - 1.0
    }

    /// Returns `count` numbers, each within -1..1.
    pub fn floats(&mut self, count: usize) -> Vec<f32> {
        (0..count).map(|_| self.float()).collect()
    }

    /// Returns `count` bytes.
    pub fn bytes(&mut self, count: usize) -> Vec<u8> {
        (0..count).map(|_| self.bits() as u8).collect()
    }
}

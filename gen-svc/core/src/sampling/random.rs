//! Random numbers that depend only on seed, output and position.

/// Returns a number in 0 .. 1 with 53 bits. SplitMix64 scrambles the state after each word.
#[must_use]
pub fn uniform(seed: u64, output_index: u32, position: u64) -> f64 {
    let bits = [seed, u64::from(output_index), position].into_iter().fold(0, |state, word| scramble(state ^ word));
    (bits >> 11) as f64 * (1.0 / (1_u64 << 53) as f64)
}

/// Computes one step of SplitMix64.
fn scramble(state: u64) -> u64 {
    let z = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

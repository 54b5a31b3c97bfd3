//! Sums of weighted runs of bytes, the inner loop of a resize.

/// How many sums are computed at once.
const LANES: usize = 32;

/// Writes the rounded sums of `weights.len()` runs of `source`, `stride` bytes apart.
pub(super) fn weigh(source: &[u8], stride: usize, weights: &[i16], precision: u32, out: &mut [u8]) {
    let full = out.len() / LANES * LANES;
    let (blocks, rest) = out.split_at_mut(full);
    weigh_blocks(source, stride, weights, precision, blocks.as_chunks_mut().0);
    for (index, byte) in rest.iter_mut().enumerate() {
        let column = source[full + index..].iter().step_by(stride);
        let sum: i32 = column.zip(weights).map(|(&byte, &weight)| i32::from(byte) * i32::from(weight)).sum();
        *byte = rounded(sum + half(precision), precision);
    }
}

fn weigh_blocks(source: &[u8], stride: usize, weights: &[i16], precision: u32, blocks: &mut [[u8; LANES]]) {
    #[cfg(target_arch = "x86_64")]
    if is_x86_feature_detected!("avx2") {
        for (index, block) in blocks.iter_mut().enumerate() {
            #[allow(unsafe_code)]
            // SAFETY: the processor has the instructions that the function is compiled for.
            unsafe {
                avx2::weigh_block(&source[index * LANES..], stride, weights, precision, block);
            }
        }
        return;
    }
    for (index, block) in blocks.iter_mut().enumerate() {
        weigh_block(&source[index * LANES..], stride, weights, precision, block);
    }
}

fn weigh_block(source: &[u8], stride: usize, weights: &[i16], precision: u32, out: &mut [u8; LANES]) {
    let mut sums = [half(precision); LANES];
    for (run, &weight) in source.chunks(stride).zip(weights) {
        let run: &[u8; LANES] = run.first_chunk().expect("a run has a block's bytes");
        for (sum, &byte) in sums.iter_mut().zip(run) {
            // A product of 16-bit numbers: most vector units have no fast one of 32 bits.
            *sum += i32::from(i16::from(byte)) * i32::from(weight);
        }
    }
    *out = sums.map(|sum| rounded(sum, precision));
}

/// Returns the addend with which a shift rounds to the nearest.
fn half(precision: u32) -> i32 {
    1 << precision >> 1
}

fn rounded(sum: i32, precision: u32) -> u8 {
    (sum >> precision).clamp(0, 255) as u8
}

/// The sums of a block with instructions that weigh two runs at once. The compiler does not find
/// them by itself.
#[cfg(target_arch = "x86_64")]
mod avx2 {
    use std::arch::x86_64::*;

    use super::{LANES, half};

    /// Does what [`super::weigh_block`] does, in the same integers.
    #[target_feature(enable = "avx2")]
    pub(super) fn weigh_block(source: &[u8], stride: usize, weights: &[i16], precision: u32, out: &mut [u8; LANES]) {
        let zero = _mm256_setzero_si256();
        let mut sums = [_mm256_set1_epi32(half(precision)); 4];
        let (pairs, last) = weights.as_chunks::<2>();
        let mut runs = source.chunks(stride);
        let mut next = || load(runs.next().and_then(|run| run.first_chunk()).expect("a run has a block's bytes"));
        let last = last.first().map(|&weight| [weight, 0]);
        for (index, &[first, second]) in pairs.iter().chain(&last).enumerate() {
            let above = next();
            let below = if index < pairs.len() { next() } else { zero };
            let weights = _mm256_set1_epi32(i32::from(first) & 0xffff | i32::from(second) << 16);
            let (low, high) = (_mm256_unpacklo_epi8(above, below), _mm256_unpackhi_epi8(above, below));
            let wide = [
                _mm256_unpacklo_epi8(low, zero),
                _mm256_unpackhi_epi8(low, zero),
                _mm256_unpacklo_epi8(high, zero),
                _mm256_unpackhi_epi8(high, zero),
            ];
            for (sum, bytes) in sums.iter_mut().zip(wide) {
                *sum = _mm256_add_epi32(*sum, _mm256_madd_epi16(bytes, weights));
            }
        }
        let precision = _mm_cvtsi32_si128(precision.cast_signed());
        let [a, b, c, d] = sums.map(|sum| _mm256_sra_epi32(sum, precision));
        // Packing clamps, and undoes the order of unpacking.
        let packed = _mm256_packus_epi16(_mm256_packs_epi32(a, b), _mm256_packs_epi32(c, d));
        store(packed, out);
    }

    #[allow(unsafe_code)]
    #[target_feature(enable = "avx2")]
    fn load(bytes: &[u8; LANES]) -> __m256i {
        // SAFETY: an array of 32 bytes is read, at any alignment.
        unsafe { _mm256_loadu_si256(bytes.as_ptr().cast()) }
    }

    #[allow(unsafe_code)]
    #[target_feature(enable = "avx2")]
    fn store(vector: __m256i, bytes: &mut [u8; LANES]) {
        // SAFETY: an array of 32 bytes is written, at any alignment.
        unsafe { _mm256_storeu_si256(bytes.as_mut_ptr().cast(), vector) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_equal_the_sums_of_single_bytes() {
        let noise = |index: usize| (index.wrapping_mul(2_654_435_761) >> 7) as u32;
        let stride = 3 * LANES + 5;
        for taps in 1..9 {
            let source: Vec<u8> = (0..stride * taps).map(|index| noise(index) as u8).collect();
            let weights: Vec<i16> = (0..taps).map(|tap| (noise(tap + 991) % 40_000) as i16).collect();
            for precision in [1, 8, 14] {
                let mut out = vec![0; stride];
                weigh(&source, stride, &weights, precision, &mut out);
                let sum = |column: usize| {
                    let terms = weights
                        .iter()
                        .enumerate()
                        .map(|(tap, &weight)| i64::from(source[tap * stride + column]) * i64::from(weight));
                    ((terms.sum::<i64>() + (1 << precision >> 1)) >> precision).clamp(0, 255) as u8
                };
                assert!(out.iter().copied().eq((0..stride).map(sum)), "{taps} runs, precision {precision}");
            }
        }
    }
}

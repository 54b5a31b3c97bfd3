//! Sums of weighted runs of bytes, the inner loop of a resize.

/// How many sums are computed at once, at least.
const LANES: usize = 32;

/// Writes the rounded sums of `weights.len()` runs of `source`, `stride` bytes apart.
pub(super) fn weigh(source: &[u8], stride: usize, weights: &[i16], precision: u32, out: &mut [u8]) {
    let runs = Runs { source, stride, weights, precision };
    #[cfg(target_arch = "x86_64")]
    if out.len() >= LANES && is_x86_feature_detected!("avx2") {
        #[allow(unsafe_code)]
        // SAFETY: the processor has the instructions that the function is compiled for.
        return unsafe { avx2::weigh(&runs, out) };
    }
    runs.weigh(out);
}

/// Runs of bytes, and the weight of each.
struct Runs<'a> {
    source: &'a [u8],
    /// The bytes from the start of a run to that of the next one.
    stride: usize,
    weights: &'a [i16],
    precision: u32,
}

impl Runs<'_> {
    /// Returns the bytes of a run from `column` on.
    fn bytes<const COUNT: usize>(&self, run: usize, column: usize) -> &[u8; COUNT] {
        self.source[run * self.stride + column..].first_chunk().expect("a run has a block's bytes")
    }

    /// Writes the sums on any processor.
    fn weigh(&self, out: &mut [u8]) {
        let (blocks, rest) = out.as_chunks_mut();
        let full = blocks.len() * LANES;
        blocks.iter_mut().enumerate().for_each(|(index, block)| self.weigh_block(index * LANES, block));
        rest.iter_mut().enumerate().for_each(|(index, byte)| *byte = self.weigh_byte(full + index));
    }

    fn weigh_block(&self, column: usize, out: &mut [u8; LANES]) {
        let mut sums = [half(self.precision); LANES];
        for (run, &weight) in self.weights.iter().enumerate() {
            for (sum, &byte) in sums.iter_mut().zip(self.bytes::<LANES>(run, column)) {
                // A product of 16-bit numbers: most vector units have no fast one of 32 bits.
                *sum += i32::from(i16::from(byte)) * i32::from(weight);
            }
        }
        *out = sums.map(|sum| rounded(sum, self.precision));
    }

    fn weigh_byte(&self, column: usize) -> u8 {
        let bytes = self.source[column..].iter().step_by(self.stride);
        let sum: i32 = bytes.zip(self.weights).map(|(&byte, &weight)| i32::from(byte) * i32::from(weight)).sum();
        rounded(sum + half(self.precision), self.precision)
    }
}

/// Returns the addend with which a shift rounds to the nearest.
fn half(precision: u32) -> i32 {
    1 << precision >> 1
}

fn rounded(sum: i32, precision: u32) -> u8 {
    (sum >> precision).clamp(0, 255) as u8
}

/// The sums with instructions that weigh two runs at once. The compiler does not find them by itself.
#[cfg(target_arch = "x86_64")]
mod avx2 {
    use std::arch::x86_64::*;

    use super::{LANES, Runs, half};

    /// The vectors of a wide block. Its sums take half of the registers.
    const WIDE: usize = 2;

    /// Does what [`super::weigh`] does, in the same integers. `out` has at least a block's bytes.
    #[target_feature(enable = "avx2")]
    pub(super) fn weigh(runs: &Runs<'_>, out: &mut [u8]) {
        let (wide, rest) = out.as_chunks_mut::<{ WIDE * LANES }>();
        let mut column = 0;
        for block in wide {
            *block.as_chunks_mut().0.first_chunk_mut().expect("whole blocks") = weigh_blocks::<WIDE>(runs, column);
            column += WIDE * LANES;
        }
        if let Some(block) = rest.first_chunk_mut() {
            [*block] = weigh_blocks(runs, column);
            column += LANES;
        }
        // The last block overlaps those before it.
        if column < out.len() {
            let last = out.len() - LANES;
            [*out.last_chunk_mut().expect("a block's bytes")] = weigh_blocks(runs, last);
        }
    }

    #[target_feature(enable = "avx2")]
    fn weigh_blocks<const COUNT: usize>(runs: &Runs<'_>, column: usize) -> [[u8; LANES]; COUNT] {
        let mut sums = [[_mm256_set1_epi32(half(runs.precision)); 4]; COUNT];
        let (pairs, last) = runs.weights.as_chunks::<2>();
        for (index, &[first, second]) in pairs.iter().enumerate() {
            let weights = _mm256_set1_epi32(i32::from(first) & 0xffff | i32::from(second) << 16);
            add(&mut sums, load(runs, 2 * index, column), load(runs, 2 * index + 1, column), weights);
        }
        if let &[weight] = last {
            let run = load(runs, runs.weights.len() - 1, column);
            add(&mut sums, run, run, _mm256_set1_epi32(i32::from(weight) & 0xffff));
        }
        let mut blocks = [[0; LANES]; COUNT];
        for (block, sums) in blocks.iter_mut().zip(sums) {
            store(packed(sums, runs.precision), block);
        }
        blocks
    }

    /// Adds two weighted runs.
    #[target_feature(enable = "avx2")]
    fn add<const COUNT: usize>(
        sums: &mut [[__m256i; 4]; COUNT],
        above: [__m256i; COUNT],
        below: [__m256i; COUNT],
        weights: __m256i,
    ) {
        let zero = _mm256_setzero_si256();
        for (sums, (above, below)) in sums.iter_mut().zip(above.into_iter().zip(below)) {
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
    }

    /// Returns the rounded sums of a block. Packing clamps, and undoes the order of unpacking.
    #[target_feature(enable = "avx2")]
    fn packed(mut sums: [__m256i; 4], precision: u32) -> __m256i {
        let precision = _mm_cvtsi32_si128(precision.cast_signed());
        for sum in &mut sums {
            *sum = _mm256_sra_epi32(*sum, precision);
        }
        let [a, b, c, d] = sums;
        _mm256_packus_epi16(_mm256_packs_epi32(a, b), _mm256_packs_epi32(c, d))
    }

    #[allow(unsafe_code)]
    #[target_feature(enable = "avx2")]
    fn store(vector: __m256i, bytes: &mut [u8; LANES]) {
        // SAFETY: an array of 32 bytes is written, at any alignment.
        unsafe { _mm256_storeu_si256(bytes.as_mut_ptr().cast(), vector) }
    }

    /// Returns the bytes of a run. A closure here would not be compiled into its caller.
    #[target_feature(enable = "avx2")]
    fn load<const COUNT: usize>(runs: &Runs<'_>, run: usize, column: usize) -> [__m256i; COUNT] {
        let bytes = &runs.source[run * runs.stride + column..][..COUNT * LANES];
        let mut vectors = [_mm256_setzero_si256(); COUNT];
        for (vector, bytes) in vectors.iter_mut().zip(bytes.as_chunks::<LANES>().0) {
            #[allow(unsafe_code)]
            // SAFETY: an array of 32 bytes is read, at any alignment.
            unsafe {
                *vector = _mm256_loadu_si256(bytes.as_ptr().cast());
            }
        }
        vectors
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_equal_the_sums_of_single_bytes() {
        let noise = |index: usize| (index.wrapping_mul(2_654_435_761) >> 7) as u32;
        for (taps, stride) in
            (1..9).flat_map(|taps| [5, LANES, 2 * LANES + 7, 3 * LANES, 5 * LANES + 1].map(|stride| (taps, stride)))
        {
            let source: Vec<u8> = (0..stride * taps).map(|index| noise(index) as u8).collect();
            let weights: Vec<i16> = (0..taps).map(|tap| (noise(tap + 991) % 40_000) as i16).collect();
            for precision in [1, 8, 14] {
                let runs = Runs { source: &source, stride, weights: &weights, precision };
                let expected: Vec<u8> = (0..stride).map(|column| runs.weigh_byte(column)).collect();
                let (mut out, mut portable) = (vec![0; stride], vec![0; stride]);
                weigh(&source, stride, &weights, precision, &mut out);
                runs.weigh(&mut portable);
                assert_eq!([&out, &portable], [&expected, &expected], "{taps} runs of {stride}, precision {precision}");
            }
        }
    }

    #[test]
    fn a_sum_is_rounded_to_the_nearest_byte() {
        let runs = |source: &[u8], weights: &[i16]| Runs { source, stride: 1, weights, precision: 2 }.weigh_byte(0);
        assert_eq!([runs(&[3, 4], &[1, 1]), runs(&[3, 2], &[1, 1]), runs(&[9, 9], &[1, -8])], [2, 1, 0]);
        assert_eq!(runs(&[255, 255], &[9, 9]), 255);
    }
}

//! Sums of weighted runs of bytes, the inner loop of a resize.

/// How many sums are computed at once.
const LANES: usize = 32;

/// Writes the rounded sums of `weights.len()` runs of `source`, `stride` bytes apart.
pub(super) fn weigh(source: &[u8], stride: usize, weights: &[i16], precision: u32, out: &mut [u8]) {
    #[cfg(target_arch = "x86_64")]
    if is_x86_feature_detected!("avx2") {
        #[allow(unsafe_code)]
        // SAFETY: the processor has the instructions that the function is compiled for.
        return unsafe { weigh_avx2(source, stride, weights, precision, out) };
    }
    weigh_portable(source, stride, weights, precision, out);
}

/// The same code as [`weigh_portable`], compiled for AVX2.
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2")]
fn weigh_avx2(source: &[u8], stride: usize, weights: &[i16], precision: u32, out: &mut [u8]) {
    weigh_portable(source, stride, weights, precision, out);
}

#[inline(always)]
fn weigh_portable(source: &[u8], stride: usize, weights: &[i16], precision: u32, out: &mut [u8]) {
    let full = out.len() / LANES * LANES;
    let (blocks, rest) = out.split_at_mut(full);
    for (index, block) in blocks.chunks_exact_mut(LANES).enumerate() {
        weigh_block(&source[index * LANES..], stride, weights, precision, block);
    }
    for (index, byte) in rest.iter_mut().enumerate() {
        let column = source[full + index..].iter().step_by(stride);
        let sum: i32 = column.zip(weights).map(|(&byte, &weight)| i32::from(byte) * i32::from(weight)).sum();
        *byte = rounded(sum + (1 << precision >> 1), precision);
    }
}

#[inline(always)]
fn weigh_block(source: &[u8], stride: usize, weights: &[i16], precision: u32, out: &mut [u8]) {
    let mut sums = [1 << precision >> 1; LANES];
    for (run, &weight) in source.chunks(stride).zip(weights) {
        let run: &[u8; LANES] = run.first_chunk().expect("a run has a block's bytes");
        for (sum, &byte) in sums.iter_mut().zip(run) {
            // A product of 16-bit numbers: most vector units have no fast one of 32 bits.
            *sum += i32::from(i16::from(byte)) * i32::from(weight);
        }
    }
    for (byte, sum) in out.iter_mut().zip(sums) {
        *byte = rounded(sum, precision);
    }
}

#[inline(always)]
fn rounded(sum: i32, precision: u32) -> u8 {
    (sum >> precision).clamp(0, 255) as u8
}

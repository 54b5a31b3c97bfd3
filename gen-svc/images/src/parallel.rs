//! Work on parts of a buffer, on several threads.

use rayon::iter::{IndexedParallelIterator, ParallelIterator};
use rayon::slice::ParallelSliceMut;

/// The bytes of a part. A smaller one takes about as long as sending it to another thread.
const PART_BYTES: usize = 256 << 10;

/// Calls `work` with parts of `out` and the index of each part's first unit. Parts have whole units
/// of `unit` values. The calls run at the same time, if `out` is large.
pub fn in_parts<T: Send>(out: &mut [T], unit: usize, work: impl Fn(usize, &mut [T]) + Sync) {
    let unit = unit.max(1);
    let units = (PART_BYTES / (unit * size_of::<T>()).max(1)).max(1);
    if out.len() <= units * unit {
        return work(0, out);
    }
    out.par_chunks_mut(units * unit).enumerate().for_each(|(part, out)| work(part * units, out));
}

/// The shares of a buffer per thread. A thread that ends early takes one of another.
const SHARES_PER_THREAD: usize = 2;

/// Calls `work` with a few large parts of `out` and the index of each part's first unit, at the same
/// time. Parts have whole units of `unit` bytes, and at least `least` units where there are as many.
pub(crate) fn in_shares(out: &mut [u8], unit: usize, least: usize, work: impl Fn(usize, &mut [u8]) + Sync) {
    let unit = unit.max(1);
    let units = (out.len() / unit).div_ceil(SHARES_PER_THREAD * rayon::current_num_threads()).max(least);
    if out.len() <= units * unit {
        return work(0, out);
    }
    out.par_chunks_mut(units * unit).enumerate().for_each(|(share, out)| work(share * units, out));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_have_whole_units() {
        for (units, unit, least) in [(0, 4, 1), (1, 3, 8), (100, 7, 3), (1000, 1, 64)] {
            let mut out = vec![0; units * unit];
            in_shares(&mut out, unit, least, |start, share| {
                assert_eq!(share.len() % unit, 0);
                for (index, unit) in share.chunks_mut(unit).enumerate() {
                    unit.iter_mut().for_each(|byte| *byte += 1 + ((start + index) % 200) as u8);
                }
            });
            let expected = (0..units * unit).map(|index| 1 + (index / unit % 200) as u8);
            assert!(out.into_iter().eq(expected), "{units} units of {unit}");
        }
    }

    #[test]
    fn every_value_is_in_one_part_whose_units_are_whole() {
        for (length, unit) in [(0, 4), (3, 4), (1 << 20, 3), (5 << 20, 1 << 20)] {
            let mut out = vec![0_u32; length];
            in_parts(&mut out, unit, |start, part| {
                for (index, units) in part.chunks_mut(unit).enumerate() {
                    units.iter_mut().for_each(|value| *value += 1 + (start + index) as u32);
                }
            });
            let expected = (0..length).map(|index| 1 + (index / unit) as u32);
            assert!(out.into_iter().eq(expected), "{length} values in units of {unit}");
        }
    }
}

//! Divides the sequences of a call into few buckets. The sequences of a bucket are padded to the same
//! size, and attention over them is one call.

use std::ops::Range;

/// The ratios of the longest to the shortest sequence of a bucket, the first that pads little enough
/// is used. With the last, padding cannot exceed [`PADDING`].
const RATIOS: [usize; 4] = [usize::MAX, 8, 4, 2];
/// The most bytes of a call's keys and values with padding, as a multiple of those without.
const PADDING: usize = 2;
/// The most scores of a head in a bucket of several sequences with more than one token. It bounds the
/// memory of the bucket's mask.
const SCORES: usize = 1 << 22;

/// The sequences of a bucket, and its size: tokens and positions with padding.
pub(super) type SizedBucket = (Range<usize>, [usize; 2]);

/// Divides sequences into few buckets, which have the size of the longest.
pub(super) fn of_any_sizes(sizes: &[[usize; 2]]) -> Vec<SizedBucket> {
    let longest = |range: &Range<usize>, part: usize| sizes[range.clone()].iter().map(|size| size[part]).max();
    let size = |range: &Range<usize>| [0, 1].map(|part| longest(range, part).unwrap_or_default());
    of(sizes).into_iter().map(|range| (range.clone(), size(&range))).collect()
}

/// Divides sequences so that the padding of each depends on its own size only: both numbers are powers of
/// two, and a bucket has sequences of one size.
pub(super) fn of_equal_sizes(sizes: &[[usize; 2]]) -> Vec<SizedBucket> {
    with_own_padding(sizes, are_equal)
}

/// As [`of_equal_sizes`], with one sequence in a bucket. Products of several matrices depend on their number.
pub(super) fn of_one_sequence(sizes: &[[usize; 2]]) -> Vec<SizedBucket> {
    with_own_padding(sizes, |_| false)
}

fn with_own_padding(sizes: &[[usize; 2]], fits: fn(&[[usize; 2]]) -> bool) -> Vec<SizedBucket> {
    let sizes: Vec<[usize; 2]> = sizes.iter().map(|size| size.map(usize::next_power_of_two)).collect();
    joined(&sizes, 0, fits).into_iter().map(|range| (range.clone(), sizes[range.start])).collect()
}

fn are_equal(sizes: &[[usize; 2]]) -> bool {
    let [tokens, positions] = sizes[0];
    sizes.iter().all(|size| *size == sizes[0]) && (tokens == 1 || sizes.len() * tokens * positions <= SCORES)
}

/// Divides sequences, given as numbers of tokens and of visible positions. The sequences with one
/// token are first, the longest of each kind first.
fn of(sizes: &[[usize; 2]]) -> Vec<Range<usize>> {
    let decodes = sizes.partition_point(|[tokens, _]| *tokens == 1);
    let mut buckets = of_decodes(&sizes[..decodes]);
    buckets.extend(joined(sizes, decodes, fits));
    buckets
}

fn of_decodes(sizes: &[[usize; 2]]) -> Vec<Range<usize>> {
    let own: usize = sizes.iter().map(|[_, positions]| positions).sum();
    let padded = |buckets: &[Range<usize>]| -> usize { buckets.iter().map(|it| it.len() * sizes[it.start][1]).sum() };
    let divided = RATIOS.iter().map(|&ratio| by_ratio(sizes, ratio));
    divided.into_iter().find(|buckets| padded(buckets) <= PADDING * own).unwrap_or_default()
}

/// Divides sequences so that the longest of a bucket is at most `ratio` times as long as any other.
fn by_ratio(sizes: &[[usize; 2]], ratio: usize) -> Vec<Range<usize>> {
    let mut buckets: Vec<Range<usize>> = Vec::new();
    for (i, [_, positions]) in sizes.iter().enumerate() {
        match buckets.last_mut() {
            Some(last) if sizes[last.start][1] <= positions.saturating_mul(ratio) => last.end = i + 1,
            _ => buckets.push(i..i + 1),
        }
    }
    buckets
}

/// Divides the sequences from `first` on. A sequence joins the bucket before it if that one still `fits`.
fn joined(sizes: &[[usize; 2]], first: usize, fits: fn(&[[usize; 2]]) -> bool) -> Vec<Range<usize>> {
    let mut buckets: Vec<Range<usize>> = Vec::new();
    for i in first..sizes.len() {
        match buckets.last_mut() {
            Some(last) if fits(&sizes[last.start..=i]) => last.end = i + 1,
            _ => buckets.push(i..i + 1),
        }
    }
    buckets
}

fn fits(sizes: &[[usize; 2]]) -> bool {
    let largest = |part: usize| sizes.iter().map(|size| size[part]).max().unwrap_or_default();
    let padded = sizes.len() * largest(0) * largest(1);
    let own: usize = sizes.iter().map(|[tokens, positions]| tokens * positions).sum();
    padded <= PADDING * own && padded <= SCORES
}

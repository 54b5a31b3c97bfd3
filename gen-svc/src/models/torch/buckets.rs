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

/// Divides sequences, given as numbers of tokens and of visible positions. The sequences with one
/// token are first, the longest of each kind first.
pub(super) fn of(sizes: &[[usize; 2]]) -> Vec<Range<usize>> {
    let decodes = sizes.partition_point(|[tokens, _]| *tokens == 1);
    let mut buckets = of_decodes(&sizes[..decodes]);
    buckets.extend(of_prefills(sizes, decodes));
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

/// Divides the sequences from `first` on, which have more than one token.
fn of_prefills(sizes: &[[usize; 2]], first: usize) -> Vec<Range<usize>> {
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

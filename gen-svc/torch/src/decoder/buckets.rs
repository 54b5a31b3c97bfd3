//! Divides the sequences of a call into few buckets. The sequences of a bucket are padded to the same
//! size, and attention over them is one call.
//!
//! With one token each, n sequences have at most log2(n) + 1 buckets, and at most log2 of the longest one's
//! positions + 1. With more tokens, they have at most [`PROMPTS`]. Only the bounds of the workspace add to
//! these numbers.

use std::iter;
use std::ops::Range;

use super::workspace::Workspace;

/// The ratios of the longest to the shortest sequence of a bucket. With the last, padding cannot exceed
/// [`PADDING`].
const RATIOS: [usize; 4] = [usize::MAX, 8, 4, 2];
/// The most bytes of a call's keys and values with padding, as a multiple of those without.
const PADDING: usize = 2;
/// The most buckets of sequences with more than one token.
const PROMPTS: usize = 8;

/// The sequences of a bucket, and its size: tokens and positions with padding.
pub(super) type SizedBucket = (Range<usize>, [usize; 2]);

/// Divides sequences into few buckets, which have the size of the longest.
pub(super) fn of_any_sizes(sizes: &[[usize; 2]], workspace: Workspace) -> Vec<SizedBucket> {
    of(sizes, workspace).into_iter().map(|range| (range.clone(), largest(&sizes[range]))).collect()
}

/// Divides sequences so that the padding of each depends on its own size only: both numbers are powers of
/// two, and a bucket has sequences of one size.
pub(super) fn of_equal_sizes(sizes: &[[usize; 2]], workspace: Workspace) -> Vec<SizedBucket> {
    with_own_padding(sizes, |sizes| sizes.iter().all(|size| *size == sizes[0]) && holds(sizes, workspace))
}

/// As [`of_equal_sizes`], with one sequence in a bucket. Products of several matrices depend on their number.
pub(super) fn of_one_sequence(sizes: &[[usize; 2]], _: Workspace) -> Vec<SizedBucket> {
    with_own_padding(sizes, |_| false)
}

fn with_own_padding(sizes: &[[usize; 2]], fits: impl Fn(&[[usize; 2]]) -> bool) -> Vec<SizedBucket> {
    let sizes: Vec<[usize; 2]> = sizes.iter().map(|size| size.map(usize::next_power_of_two)).collect();
    joined(&sizes, 0, fits).into_iter().map(|range| (range.clone(), sizes[range.start])).collect()
}

/// Divides sequences, given as numbers of tokens and of visible positions. The sequences with one
/// token are first, the longest of each kind first.
fn of(sizes: &[[usize; 2]], workspace: Workspace) -> Vec<Range<usize>> {
    let decodes = sizes.partition_point(|[tokens, _]| *tokens == 1);
    let mut buckets = of_decodes(&sizes[..decodes], workspace);
    buckets.extend(of_prompts(sizes, decodes, workspace));
    buckets
}

/// Chooses the fewest buckets that pad little enough.
fn of_decodes(sizes: &[[usize; 2]], workspace: Workspace) -> Vec<Range<usize>> {
    let own: usize = sizes.iter().map(|[_, positions]| positions).sum();
    let padded = |buckets: &[Range<usize>]| -> usize { buckets.iter().map(|it| it.len() * sizes[it.start][1]).sum() };
    let divided = RATIOS.iter().map(|&ratio| by_ratio(sizes, ratio)).chain([by_number(sizes.len())]);
    let fewest = divided.filter(|buckets| padded(buckets) <= PADDING * own).min_by_key(Vec::len);
    let within = |bucket: Range<usize>| {
        let most = (workspace.positions / sizes[bucket.start][1].max(1)).max(1);
        bucket.clone().step_by(most).map(move |start| start..bucket.end.min(start.saturating_add(most)))
    };
    fewest.into_iter().flatten().flat_map(within).collect()
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

/// Divides descending sequences into buckets of 1, 2, 4, .. sequences. Padding cannot exceed [`PADDING`]: a
/// bucket is at most twice as large as the one before, each sequence of which is at least as long.
fn by_number(count: usize) -> Vec<Range<usize>> {
    let ends = iter::successors(Some(1), |end| Some(2 * end + 1));
    ends.map(|end| end / 2..count.min(end)).take_while(|bucket| !bucket.is_empty()).collect()
}

/// Divides the sequences from `first` on. If there are too many buckets, neighbours are joined whose padding
/// grows least, as far as the workspace holds them.
fn of_prompts(sizes: &[[usize; 2]], first: usize, workspace: Workspace) -> Vec<Range<usize>> {
    let mut buckets = joined(sizes, first, |sizes| pads_little(sizes) && holds(sizes, workspace));
    while buckets.len() > PROMPTS {
        let growth = |pair: &[Range<usize>]| {
            let padded = |range: Range<usize>| padded(&sizes[range]);
            let both = pair[0].start..pair[1].end;
            let growth = padded(both.clone()) - padded(pair[0].clone()) - padded(pair[1].clone());
            holds(&sizes[both], workspace).then_some(growth)
        };
        let pairs = buckets.windows(2).enumerate().filter_map(|(i, pair)| Some((growth(pair)?, i)));
        let Some((_, least)) = pairs.min() else { break };
        buckets[least].end = buckets.remove(least + 1).end;
    }
    buckets
}

/// Divides the sequences from `first` on. A sequence joins the bucket before it if that one still `fits`.
fn joined(sizes: &[[usize; 2]], first: usize, fits: impl Fn(&[[usize; 2]]) -> bool) -> Vec<Range<usize>> {
    let mut buckets: Vec<Range<usize>> = Vec::new();
    for i in first..sizes.len() {
        match buckets.last_mut() {
            Some(last) if fits(&sizes[last.start..=i]) => last.end = i + 1,
            _ => buckets.push(i..i + 1),
        }
    }
    buckets
}

fn pads_little(sizes: &[[usize; 2]]) -> bool {
    let own: usize = sizes.iter().map(|[tokens, positions]| tokens * positions).sum();
    padded(sizes) <= PADDING * own
}

/// Returns true if the workspace suffices for several sequences as one bucket.
fn holds(sizes: &[[usize; 2]], workspace: Workspace) -> bool {
    let [tokens, positions] = largest(sizes);
    let has_scores = tokens == 1 || padded(sizes) <= workspace.joined_scores;
    has_scores && sizes.len() * positions <= workspace.positions
}

/// Returns the scores of a head with padding.
fn padded(sizes: &[[usize; 2]]) -> usize {
    let [tokens, positions] = largest(sizes);
    sizes.len() * tokens * positions
}

fn largest(sizes: &[[usize; 2]]) -> [usize; 2] {
    [0, 1].map(|part| sizes.iter().map(|size| size[part]).max().unwrap_or_default())
}

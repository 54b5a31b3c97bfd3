//! The division of sequences into buckets of attention, and the bounds of its workspace.

use std::cmp::Reverse;

use tandem_tests::Random;
use tandem_torch::{AttentionCase, TorchTarget, Workspace};

/// More batches than a step can have shapes that differ in kind.
const BATCHES: u64 = 3000;
/// The longest context.
const CONTEXT: u64 = 1 << 17;
/// The most buckets of prompts.
const PROMPTS: usize = 8;

/// Bounds that no batch reaches.
const UNBOUNDED: Workspace = Workspace {
    positions: usize::MAX,
    scores: usize::MAX,
    joined_scores: usize::MAX,
    masks: usize::MAX,
    keeps_scores: false,
};

/// Returns up to 128 sequences in the order of computation. Their positions are spread over all magnitudes.
fn batch(random: &mut Random) -> Vec<[usize; 2]> {
    let magnitudes = 1 + random.below(17);
    let length = |random: &mut Random| {
        let end = CONTEXT >> random.below(magnitudes);
        1 + random.below(end) as usize
    };
    let mut decodes: Vec<_> = (0..random.below(128)).map(|_| [1, length(random)]).collect();
    let mut left = random.below(2048) as usize;
    let mut prompts = Vec::new();
    while left >= 2 {
        let part = 1 + random.below(40) as usize;
        let tokens = 2 + random.below(left as u64 - 1) as usize / part;
        prompts.push([tokens, tokens + length(random)]);
        left = left.saturating_sub(tokens);
    }
    [&mut decodes, &mut prompts].into_iter().for_each(|part| part.sort_by_key(|size| Reverse(size[1])));
    [decodes, prompts].concat()
}

/// Asserts that the buckets have all sequences in order, each at least at its own size. Returns the buckets
/// of sequences with one token, and the others.
#[track_caller]
fn divided(workspace: Workspace, sizes: &[[usize; 2]]) -> [Vec<(usize, [usize; 2])>; 2] {
    let (mut next, mut parts) = (0, [Vec::new(), Vec::new()]);
    for (range, size) in workspace.buckets(sizes) {
        assert!(range.start == next && range.end > next, "{range:?} after {next}");
        next = range.end;
        let own = &sizes[range.clone()];
        assert!(own.iter().all(|[tokens, positions]| *tokens <= size[0] && *positions <= size[1]));
        assert!(own.iter().all(|[tokens, _]| (*tokens == 1) == (own[0][0] == 1)), "both kinds in one bucket");
        parts[usize::from(own[0][0] > 1)].push((range.len(), size));
    }
    assert_eq!(next, sizes.len());
    parts
}

/// Returns the positions with padding, and those of the sequences.
fn positions(buckets: &[(usize, [usize; 2])], sizes: &[[usize; 2]]) -> [usize; 2] {
    let padded = buckets.iter().map(|(count, [_, positions])| count * positions).sum();
    [padded, sizes.iter().map(|[_, positions]| positions).sum()]
}

#[test]
fn sequences_have_few_buckets_whose_padding_at_most_doubles_the_bytes() {
    let (mut most, mut joined) = (0, 0);
    for seed in 0..BATCHES {
        let sizes = batch(&mut Random(seed << 20));
        let [decodes, prompts] = divided(UNBOUNDED, &sizes);
        let (of_decodes, of_prompts) = sizes.split_at(sizes.partition_point(|[tokens, _]| *tokens == 1));
        let [padded, own] = positions(&decodes, of_decodes);
        assert!(padded <= 2 * own, "seed {seed}: {padded} positions instead of {own}");
        let longest = of_decodes.first().map_or(1, |[_, positions]| *positions);
        let limit = 1 + of_decodes.len().max(1).ilog2().min(longest.ilog2()) as usize;
        assert!(decodes.len() <= limit, "seed {seed}: {} buckets of {}", decodes.len(), of_decodes.len());
        assert!(prompts.len() <= PROMPTS, "seed {seed}: {} buckets of prompts", prompts.len());
        let [padded, own] = positions(&prompts, of_prompts);
        assert!(padded <= 2 * own || prompts.len() == PROMPTS, "seed {seed}: {padded} positions instead of {own}");
        most = most.max(decodes.len());
        joined += usize::from(prompts.len() == PROMPTS);
    }
    assert!(most >= 4 && joined > 0, "the batches are too alike: {most} buckets, {joined} joined");
}

/// Every next power of two has twice as many sequences.
#[test]
fn the_number_of_sequences_limits_their_buckets() {
    let sizes: Vec<_> = (0..8).flat_map(|i| std::iter::repeat_n([1, 1 << (16 - 2 * i)], 1 << i)).collect();
    let [decodes, _] = divided(UNBOUNDED, &sizes);
    assert!(decodes.len() <= 8, "{decodes:?}");
    let like: Vec<_> = (0..128).map(|i| [1, 1128 - i]).collect();
    assert_eq!(divided(UNBOUNDED, &like)[0].len(), 1, "like lengths are one call");
}

/// Only sequences that exceed a bound alone do.
#[test]
fn buckets_stay_within_the_workspace() {
    let workspace = Workspace { positions: 1 << 15, joined_scores: 1 << 20, ..UNBOUNDED };
    for seed in 0..BATCHES {
        let sizes = batch(&mut Random(seed << 20));
        let [decodes, prompts] = divided(workspace, &sizes);
        for (count, [tokens, positions]) in [decodes, prompts].concat() {
            assert!(count == 1 || count * positions <= workspace.positions, "seed {seed}: {count} of {positions}");
            let scores = count * tokens * positions;
            assert!(count == 1 || tokens == 1 || scores <= workspace.joined_scores, "seed {seed}: {scores} scores");
        }
    }
}

#[test]
fn calls_stay_within_the_scores() {
    let bounds = [1, 1000, 1 << 24].map(|scores| Workspace { scores, ..UNBOUNDED });
    for workspace in bounds {
        for size in [[1, 2048, 131_072], [1, 7, 300], [3, 2, 9], [1, 2048, 2048]] {
            let [sequences, tokens, positions] = size;
            let at_once = workspace.tokens_at_once(size, false);
            assert!((1..=tokens).contains(&at_once));
            assert!(at_once == 1 || at_once * sequences * positions <= workspace.scores, "{size:?}: {at_once}");
            let more = (at_once + 1) * sequences * positions;
            assert!(at_once == tokens || more > workspace.scores, "{size:?}: more than {at_once} would fit");
            assert_eq!(workspace.tokens_at_once(size, true), tokens, "no scores are kept without a mask");
        }
    }
    let keeping = Workspace { scores: 1 << 22, keeps_scores: true, ..UNBOUNDED };
    assert_eq!(keeping.tokens_at_once([1, 4096, 4096], true), 1024);
}

/// Neither parts nor masks that are computed in each layer change results.
#[test]
fn buckets_in_parts_equal_whole_ones() {
    let case = |sequences: &[[usize; 2]], window, softcap| AttentionCase {
        sequences: sequences.to_vec(),
        shared_blocks: 0,
        heads: [6, 2],
        head_size: 16,
        window,
        softcap,
        block: 16,
    };
    let sequences: [&[[usize; 2]]; 4] =
        [&[[300, 40]], &[[0, 130]], &[[40, 9], [33, 7], [90, 1], [70, 1]], &[[0, 5], [9, 1]]];
    let mut compared = 0;
    for (sequences, softcap) in sequences.into_iter().flat_map(|it| [None, Some(20.0)].map(|softcap| (it, softcap))) {
        for window in [None, Some(23)] {
            let case = case(sequences, window, softcap);
            let default = case.workspace(TorchTarget::REFERENCE);
            for (scores, masks, keeps_scores) in [(700, 0, true), (1, usize::MAX, true), (700, 2000, false)] {
                let workspace = Workspace { scores, masks, keeps_scores, ..default };
                let found = case.compare(workspace, TorchTarget::REFERENCE).unwrap_or_else(|error| panic!("{error}"));
                assert!(found.rows <= 1e-6 && found.log_sums <= 1e-5, "{case:?}, {workspace:?}: {found:?}");
                compared += 1;
            }
        }
    }
    assert_eq!(compared, 48);
}

/// The default bounds, for 2,048 tokens at 131,072 positions, with heads as in a model of 8 billion
/// parameters, in f32.
#[test]
fn a_long_chunk_is_computed_in_parts() {
    let case = AttentionCase {
        sequences: vec![[131_072 - 2048, 2048]],
        shared_blocks: 0,
        heads: [32, 8],
        head_size: 128,
        window: None,
        softcap: None,
        block: 16,
    };
    let chunk = [1, 2048, 131_072];
    let workspace = case.workspace(TorchTarget::REFERENCE);
    assert_eq!(workspace.tokens_at_once(chunk, false), 128, "64 MiB of a mask");
    assert!(workspace.masks < chunk.iter().product(), "the whole mask is not kept");
    assert_eq!(workspace.tokens_at_once([1, 512, 32_768], false), 512, "usual chunks are whole");
    let capped = AttentionCase { softcap: Some(50.0), ..case }.workspace(TorchTarget::REFERENCE);
    assert_eq!(capped.tokens_at_once(chunk, false), 32, "512 MiB of scores of all heads");
    assert_eq!(capped.tokens_at_once([1, 512, 8192], false), 512, "usual chunks are whole");
}

//! Flash attention over blocks, emulated, compared with attention in buckets.

use tandem_tests::Random;
use tandem_tests_full::flash::{self, EXACT, STRICT};
use tandem_torch::{AttentionCase, FLASH_BLOCK, FlashOperation, TorchTarget};
use tch::Kind;

const CASES: u64 = 60;

/// Returns a batch of tokens after prompts, of prompts, or of both.
fn case(random: &mut Random) -> AttentionCase {
    let mut below = |end: u64| random.below(end) as usize;
    let block = FLASH_BLOCK * (1 + below(2));
    let shared_blocks = below(3);
    // Every sequence has positions after the shared blocks.
    let first = shared_blocks * block;
    let decodes = (0..below(5)).map(|_| [first + below(600), 1]).collect::<Vec<_>>();
    let prefills = (0..below(4)).map(|_| [first + below(2) * below(300), 2 + below(60)]).collect::<Vec<_>>();
    let pair_heads = 1 + below(3);
    let mut sequences = [decodes, prefills].concat();
    if sequences.is_empty() {
        sequences.push([first, 1]);
    }
    AttentionCase {
        sequences,
        shared_blocks,
        heads: [pair_heads * (1 + below(4)), pair_heads],
        head_size: 8 * (1 + below(8)),
        window: (below(2) == 0).then(|| 1 + below(400)),
        softcap: None,
        block,
    }
}

#[track_caller]
fn assert_equal(operation: FlashOperation, dtype: Kind, rows: f64) {
    let target = TorchTarget { dtype, ..TorchTarget::REFERENCE };
    for seed in 0..CASES {
        let case = case(&mut Random(seed << 16));
        let _ = flash::calls();
        let found = operation.compare(&case, target).unwrap_or_else(|error| panic!("{case:?}: {}", error.chain()));
        let has = |is_decode: bool| case.sequences.iter().any(|[_, tokens]| (*tokens == 1) == is_decode);
        let parts = usize::from(has(true)) + usize::from(has(false));
        assert_eq!(flash::calls(), parts, "{case:?}: calls");
        assert!(found.rows <= rows && found.log_sums <= 1e-4, "{dtype:?}, {case:?}: {found:?}");
    }
}

#[test]
fn flash_attention_equals_buckets_over_random_batches() {
    assert_equal(EXACT, Kind::Float, 2e-6);
    // One rounding of a result below 1, and those of weights.
    assert_equal(STRICT, Kind::BFloat16, 0.01);
    assert_equal(STRICT, Kind::Half, 0.002);
}

/// Positions of several blocks. The pieces have up to 1,024 positions, or are 16.
#[test]
fn long_sequences_equal_buckets_as_several_pieces() {
    let [long, longest, border] = [[5000, 1], [20_000, 1], [1024, 1]];
    let case = |sequences: &[[usize; 2]], window| AttentionCase {
        sequences: sequences.to_vec(),
        shared_blocks: 2,
        heads: [6, 2],
        head_size: 16,
        window,
        softcap: None,
        block: FLASH_BLOCK,
    };
    let cases = [
        (case(&[long, [1023, 1], border, longest, [600, 1]], None), 5 + 1 + 2 + 16 + 1),
        (case(&[long, [3000, 40]], None), 5 + 1),
        (case(&[[1023, 1], [700, 1]], None), 2),
        (case(&[long, border], Some(1500)), 2),
        (AttentionCase { block: 2 * FLASH_BLOCK, ..case(&[long, border], None) }, 5 + 2),
    ];
    for (operation, dtype, rows) in [(EXACT, Kind::Float, 2e-6), (STRICT, Kind::BFloat16, 0.01)] {
        for (case, pieces) in &cases {
            let target = TorchTarget { dtype, ..TorchTarget::REFERENCE };
            let _ = flash::sequences();
            let found = operation.compare(case, target).unwrap_or_else(|error| panic!("{case:?}: {}", error.chain()));
            assert_eq!(flash::sequences(), *pieces, "{case:?}: pieces");
            assert!(found.rows <= rows && found.log_sums <= 1e-4, "{dtype:?}, {case:?}: {found:?}");
        }
    }
}

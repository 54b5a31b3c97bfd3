//! Attention over a blocked KV cache, compared with its definition.

use super::{KERNELS, Random, bits, check_close};
use tandem_kernels::{
    Attention, Error, IsaLevel, Kernels, KeysValues, KvFormat, KvRun, KvShape, KvStore, POSITIONS, Scratch,
};

/// The parameters of a layer: query heads, key heads, head dimension, and the masks and caps.
#[derive(Debug, Clone, Copy)]
struct Rules {
    heads: usize,
    kv_heads: usize,
    dim: usize,
    format: KvFormat,
    soft_cap: Option<f32>,
    window: Option<usize>,
    /// Positions that attend to each other.
    block: Option<[usize; 2]>,
}

const PLAIN: Rules =
    Rules { heads: 6, kv_heads: 2, dim: 24, format: KvFormat::F32, soft_cap: None, window: None, block: None };

/// The format whose positions are in pairs.
const BF16: Rules = Rules { format: KvFormat::Bf16, ..PLAIN };

impl Rules {
    /// Returns the end of the positions that a token of a sequence attends to.
    fn end(&self, token: usize, length: usize) -> usize {
        match self.block {
            Some([start, end]) if (start..end).contains(&token) => end.min(length),
            _ => token + 1,
        }
    }
}

/// The cases: groups of 1 to 5 heads, head dimensions with and without half a wide vector, and
/// every parameter.
fn cases() -> Vec<Rules> {
    vec![
        PLAIN,
        Rules { heads: 3, kv_heads: 3, dim: 8, ..PLAIN },
        Rules { heads: 10, kv_heads: 2, dim: 32, window: Some(21), ..PLAIN },
        Rules { window: Some(1), ..PLAIN },
        Rules { window: Some(1_000_000), soft_cap: Some(0.7), ..PLAIN },
        Rules { heads: 4, kv_heads: 1, format: KvFormat::F16, ..PLAIN },
        Rules { format: KvFormat::F16, window: Some(40), soft_cap: Some(2.0), ..PLAIN },
        Rules { block: Some([5, 83]), ..PLAIN },
        Rules { heads: 10, kv_heads: 2, dim: 32, window: Some(21), block: Some([10, 60]), ..PLAIN },
        Rules { soft_cap: Some(0.7), window: Some(4), block: Some([0, 16]), ..PLAIN },
        BF16,
        Rules { heads: 3, kv_heads: 3, dim: 8, window: Some(21), ..BF16 },
        Rules { heads: 10, kv_heads: 2, dim: 40, soft_cap: Some(2.0), block: Some([5, 83]), ..BF16 },
    ]
}

/// One sequence: queries, keys and values of all its positions.
struct Sequence {
    length: usize,
    blocks: Vec<u32>,
    queries: Vec<f32>,
    keys: Vec<f32>,
    values: Vec<f32>,
}

impl Sequence {
    /// Creates a sequence with the blocks `first`, `first` + `step` and so on.
    fn new(rules: Rules, seed: u64, length: usize, first: u32, step: usize) -> Self {
        let mut random = Random(seed);
        let blocks = (first..).step_by(step).take(length.div_ceil(POSITIONS)).collect();
        let queries = random.floats(length * rules.heads * rules.dim).iter().map(|value| value * 3.0).collect();
        let [keys, values] = [0, 1].map(|_| random.floats(length * rules.kv_heads * rules.dim));
        Self { length, blocks, queries, keys, values }
    }

    fn run(&self, past: usize, length: usize) -> KvRun<'_> {
        KvRun { past, length, blocks: &self.blocks }
    }
}

fn part(values: &[f32], total: usize, past: usize, length: usize) -> &[f32] {
    let columns = values.len() / total;
    &values[past * columns..(past + length) * columns]
}

fn store(rules: Rules, blocks: usize) -> KvStore {
    let shape = KvShape { layers: 2, blocks, heads: rules.kv_heads, head_dim: rules.dim, format: rules.format };
    KvStore::new(shape).expect("memory")
}

/// Writes and attends with parts of sequences: (sequence, past, length).
fn step(kernels: &Kernels, rules: Rules, store: &mut KvStore, parts: &[(&Sequence, usize, usize)]) -> Vec<f32> {
    let runs: Vec<KvRun<'_>> = parts.iter().map(|(sequence, past, length)| sequence.run(*past, *length)).collect();
    let gather = |of: fn(&Sequence) -> &[f32]| -> Vec<f32> {
        parts
            .iter()
            .flat_map(|(sequence, past, length)| part(of(sequence), sequence.length, *past, *length))
            .copied()
            .collect()
    };
    let (keys, values, queries) = (gather(|s| &s.keys), gather(|s| &s.values), gather(|s| &s.queries));
    kernels.write(store, &runs, KeysValues { layer: 1, keys: &keys, values: &values }).expect("right shapes");
    let mut out = vec![f32::NAN; queries.len()];
    let tokens = parts
        .iter()
        .flat_map(|(sequence, past, length)| (*past..past + length).map(|token| rules.end(token, sequence.length)));
    let ends: Vec<usize> = tokens.collect();
    let attention = Attention {
        layer: 1,
        heads: rules.heads,
        scale: 0.3,
        soft_cap: rules.soft_cap,
        window: rules.window,
        ends: rules.block.map(|_| ends.as_slice()),
        runs: &runs,
        queries: &queries,
    };
    kernels.attend(store, &attention, &mut Scratch::default(), &mut out).expect("right shapes");
    out
}

/// Computes a whole sequence in one step.
fn whole(kernels: &Kernels, rules: Rules, sequence: &Sequence) -> Vec<f32> {
    let last = sequence.blocks.iter().max().expect("a block");
    step(kernels, rules, &mut store(rules, *last as usize + 1), &[(sequence, 0, sequence.length)])
}

/// Computes the definition, head by head.
fn reference(rules: Rules, sequence: &Sequence, tokens: &[usize]) -> Vec<f64> {
    let heads = tokens.iter().flat_map(|token| (0..rules.heads).map(move |head| (*token, head)));
    heads.flat_map(|(token, head)| reference_head(rules, sequence, token, head)).collect()
}

fn reference_head(rules: Rules, sequence: &Sequence, token: usize, head: usize) -> Vec<f64> {
    let dim = rules.dim;
    let query = &sequence.queries[(token * rules.heads + head) * dim..][..dim];
    let kv_head = head / (rules.heads / rules.kv_heads);
    let first = rules.window.map_or(0, |window| (token + 1).saturating_sub(window));
    let row = |values: &[f32], position: usize| -> Vec<f64> {
        let row = &values[(position * rules.kv_heads + kv_head) * dim..][..dim];
        row.iter().map(|value| f64::from(*value)).collect()
    };
    let score = |position| {
        let product: f64 = row(&sequence.keys, position).iter().zip(query).map(|(k, q)| k * f64::from(*q)).sum();
        let score = product * f64::from(0.3_f32);
        rules.soft_cap.map_or(score, |cap| f64::from(cap) * (score / f64::from(cap)).tanh())
    };
    let visible = first..rules.end(token, sequence.length);
    let weights: Vec<f64> = visible.clone().map(|position| score(position).exp()).collect();
    let sum: f64 = weights.iter().sum();
    let mut out = vec![0.0; dim];
    for (position, weight) in visible.zip(weights) {
        out.iter_mut().zip(row(&sequence.values, position)).for_each(|(out, value)| *out += weight / sum * value);
    }
    out
}

#[test]
fn attention_matches_its_definition() {
    for rules in cases() {
        for length in [1, 16, 17, 100] {
            let sequence = Sequence::new(rules, length as u64, length, 1, 2);
            let expected = reference(rules, &sequence, &(0..length).collect::<Vec<_>>());
            let found: Vec<_> = KERNELS.iter().map(|kernels| whole(kernels, rules, &sequence)).collect();
            let tolerance = match rules.format {
                KvFormat::F32 => 2e-6,
                KvFormat::F16 => 3e-3,
                KvFormat::Bf16 => 2e-2,
            };
            for found in &found {
                check_close(found, &expected, &format!("{rules:?}, {length} tokens"), |_| tolerance);
                assert_eq!(bits(found), bits(&whole(&KERNELS[0], rules, &sequence)), "ISA levels differ");
            }
        }
    }
}

#[test]
fn attention_over_merged_ranges_matches_the_reference() {
    let rules = Rules { heads: 2, kv_heads: 1, dim: 8, ..PLAIN };
    for rules in [rules, Rules { window: Some(1_100), ..rules }] {
        let sequence = Sequence::new(rules, 3, 2_500, 0, 1);
        let tokens = [0, 500, 1_023, 1_024, 1_100, 2_047, 2_048, 2_499];
        let expected = reference(rules, &sequence, &tokens);
        for kernels in KERNELS.iter() {
            let found = whole(kernels, rules, &sequence);
            let found: Vec<f32> = tokens.iter().flat_map(|token| part(&found, 2_500, *token, 1)).copied().collect();
            check_close(&found, &expected, "2,500 tokens", |_| 2e-6);
        }
    }
}

#[test]
fn chunked_attention_equals_whole_sequence_attention() {
    let small = [1, 7, 16, 50].as_slice();
    let long = Rules { heads: 2, kv_heads: 1, dim: 8, ..PLAIN };
    let cases = [(PLAIN, 75, small), (Rules { window: Some(21), ..PLAIN }, 75, small), (long, 1_100, &[90, 1_030])];
    let pairs = cases.map(|(rules, length, sizes)| (Rules { format: KvFormat::Bf16, ..rules }, length, sizes));
    for (rules, length, sizes) in cases.into_iter().chain(pairs) {
        let sequence = Sequence::new(rules, 4, length, 0, 1);
        for kernels in KERNELS.iter() {
            let expected = bits(&whole(kernels, rules, &sequence));
            for &size in sizes {
                let mut store = store(rules, sequence.blocks.len());
                let mut out = Vec::new();
                for past in (0..length).step_by(size) {
                    out.extend(step(kernels, rules, &mut store, &[(&sequence, past, size.min(length - past))]));
                }
                assert!(bits(&out) == expected, "chunks of {size}, {rules:?}");
            }
        }
    }
}

/// Ends do not change the results of other tokens, and the results of a block's tokens do not depend
/// on the chunk.
#[test]
fn tokens_around_a_block_are_computed_as_without_it() {
    for plain in [PLAIN, Rules { window: Some(21), ..PLAIN }, Rules { window: Some(21), ..BF16 }] {
        let rules = Rules { block: Some([20, 50]), ..plain };
        let sequence = Sequence::new(rules, 7, 75, 0, 1);
        let row = rules.heads * rules.dim;
        for kernels in KERNELS.iter() {
            let (with, without) = (whole(kernels, rules, &sequence), whole(kernels, plain, &sequence));
            assert_eq!(bits(&with[..20 * row]), bits(&without[..20 * row]));
            assert_ne!(bits(&with[20 * row..21 * row]), bits(&without[20 * row..21 * row]));
            assert_eq!(bits(&with[49 * row..]), bits(&without[49 * row..]));
            let mut store = store(rules, sequence.blocks.len());
            let parts = [(0, 7), (7, 10), (17, 35), (52, 23)];
            let chunked = parts.map(|(past, length)| step(kernels, rules, &mut store, &[(&sequence, past, length)]));
            assert_eq!(bits(&chunked.concat()), bits(&with));
        }
    }
}

#[test]
fn attention_depends_neither_on_other_sequences_nor_on_threads() {
    for (threads, plain) in [1, 2, 4].into_iter().flat_map(|threads| [(threads, PLAIN), (threads, BF16)]) {
        let rules = Rules { window: Some(30), ..plain };
        let sequences: Vec<_> = (0..5).map(|i| Sequence::new(rules, i, 20 + 9 * i as usize, i as u32, 5)).collect();
        let kernels = Kernels::new(threads, IsaLevel::detect());
        let mut together = store(rules, 64);
        let firsts: Vec<_> = sequences.iter().map(|sequence| (sequence, 0, sequence.length - 3)).collect();
        step(&kernels, rules, &mut together, &firsts);
        let rests: Vec<_> = sequences.iter().map(|sequence| (sequence, sequence.length - 3, 3)).collect();
        let found = step(&kernels, rules, &mut together, &rests);
        let columns = rules.heads * rules.dim;
        for (sequence, found) in sequences.iter().zip(found.chunks_exact(3 * columns)) {
            let alone = whole(&kernels, rules, sequence);
            assert_eq!(bits(found), bits(&alone[alone.len() - 3 * columns..]));
        }
    }
}

#[test]
fn masked_positions_do_not_affect_a_token() {
    for (plain, value) in [PLAIN, BF16].into_iter().flat_map(|plain| [(plain, f32::NAN), (plain, f32::INFINITY)]) {
        let rules = Rules { window: Some(8), ..plain };
        let good = Sequence::new(rules, 6, 40, 0, 1);
        let mut bad = Sequence::new(rules, 6, 40, 0, 1);
        let columns = rules.kv_heads * rules.dim;
        bad.keys[20 * columns..21 * columns].fill(value);
        bad.values[20 * columns..21 * columns].fill(value);
        for kernels in KERNELS.iter() {
            let (expected, found) = (whole(kernels, rules, &good), whole(kernels, rules, &bad));
            let row = rules.heads * rules.dim;
            assert_eq!(bits(&found[..20 * row]), bits(&expected[..20 * row]));
            assert!(found[20 * row..28 * row].iter().all(|value| !value.is_finite()));
            assert_eq!(bits(&found[28 * row..]), bits(&expected[28 * row..]));
        }
    }
}

#[test]
fn attention_calls_with_wrong_shapes_are_rejected() {
    let kernels = &KERNELS[0];
    let shape = KvShape { layers: 1, blocks: 2, heads: 2, head_dim: 8, format: KvFormat::F32 };
    assert!(KvStore::new(KvShape { head_dim: 10, ..shape }).is_err());
    assert!(KvStore::new(KvShape { head_dim: 0, ..shape }).is_err());
    assert_eq!(KvStore::new(KvShape { layers: usize::MAX, ..shape }).err(), Some(Error::Memory { bytes: None }));
    assert!(KvStore::new(KvShape { blocks: 1 << 50, ..shape }).is_err());
    let mut store = KvStore::new(shape).expect("memory");
    let numbers = [0.0; 16];
    let mut write = |layer, past, length, blocks: &[u32]| {
        let run = KvRun { past, length, blocks };
        kernels.write(&mut store, &[run], KeysValues { layer, keys: &numbers, values: &numbers })
    };
    assert_eq!(write(0, 31, 1, &[0, 1]), Ok(()));
    assert_eq!(write(1, 0, 1, &[0]), Err(Error::Range { subject: "layer", limit: 1, found: 1 }));
    assert_eq!(write(0, 0, 1, &[2]), Err(Error::Range { subject: "block", limit: 2, found: 2 }));
    assert_eq!(write(0, 16, 1, &[0]), Err(Error::Range { subject: "position", limit: 17, found: 17 }));
    assert!(write(0, usize::MAX, 1, &[0]).is_err());
    assert!(write(0, 0, 2, &[0]).is_err());
    let queries = &[0.0; 32];
    let plain =
        Attention { layer: 0, heads: 4, scale: 1.0, soft_cap: None, window: None, ends: None, runs: &[], queries };
    let attend = |heads, runs: &[KvRun<'_>], window, out: usize| {
        let attention = Attention { heads, window, runs, ..plain };
        kernels.attend(&store, &attention, &mut Scratch::default(), &mut vec![0.0; out])
    };
    let run = [KvRun { past: 0, length: 1, blocks: &[0] }];
    assert_eq!(attend(4, &run, None, 32), Ok(()));
    assert!(attend(3, &run, None, 32).is_err());
    assert!(attend(0, &run, None, 32).is_err());
    assert!(attend(2, &run, None, 32).is_err());
    assert!(attend(4, &run, Some(0), 32).is_err());
    assert!(attend(4, &run, None, 31).is_err());
    assert!(attend(4, &[], None, 32).is_err());
    let with_ends = |ends: &[usize]| {
        let (runs, queries) = ([KvRun { past: 3, length: 3, blocks: &[0] }], &[0.0; 96]);
        let attention = Attention { runs: &runs, ends: Some(ends), queries, ..plain };
        kernels.attend(&store, &attention, &mut Scratch::default(), &mut [0.0; 96])
    };
    assert_eq!(with_ends(&[4, 6, 6]), Ok(()));
    assert!(with_ends(&[4, 6]).is_err(), "too few");
    assert!(with_ends(&[3, 6, 6]).is_err(), "before the token");
    assert!(with_ends(&[6, 5, 6]).is_err(), "decreasing");
    assert!(with_ends(&[4, 5, 7]).is_err(), "beyond the run");
}

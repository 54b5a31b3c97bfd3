//! The states of linear attention: chunks, slots and positions.

mod refused;

use super::{KERNELS, Random, bits};
use tandem_kernels::{
    Activation, Convolution, DeltaRule, Error, IsaLevel, Kernels, KeyHeads, StateRun, StateSave, StateShape, StateStep,
    StateStore,
};

const SHAPE: StateShape =
    StateShape { layers: 2, slots: 16, taps: 4, key_heads: 2, value_heads: 4, key_size: 136, value_size: 136 };
/// More than a task has.
const CHANNELS: usize = 2 * 2 * 136 + 4 * 136;
/// Numbers of a token's results in one layer: convolved rows, and outputs of the recurrence.
const RESULTS: usize = CHANNELS + 4 * 136;

fn store() -> StateStore {
    StateStore::new(SHAPE).expect("memory")
}

/// The inputs of all layers for one sequence. Tokens come first in every array.
struct Sequence {
    /// \[tokens\]\[layers\]\[C\].
    rows: Vec<f32>,
    /// \[tokens\]\[layers\]\[Hv\].
    decay: Vec<f32>,
    /// \[tokens\]\[layers\]\[Hv\].
    beta: Vec<f32>,
}

impl Sequence {
    fn new(seed: u64, length: usize) -> Self {
        let mut random = Random(seed);
        let rows = random.floats(length * SHAPE.layers * CHANNELS);
        let mut gates = |least: f32| -> Vec<f32> {
            let numbers = random.floats(length * SHAPE.layers * SHAPE.value_heads);
            numbers.iter().map(|x| least + (1.0 - least) * (x + 1.0) / 2.0).collect()
        };
        Self { rows, decay: gates(0.9), beta: gates(0.2) }
    }
}

/// Returns the numbers of one layer for the tokens of all runs.
fn layer(parts: &[(&Sequence, StateRun<'_>)], layer: usize, of: fn(&Sequence) -> &[f32], columns: usize) -> Vec<f32> {
    let tokens = parts.iter().flat_map(|(sequence, run)| (run.past..run.past + run.length).map(|t| (of(sequence), t)));
    tokens
        .flat_map(|(numbers, token)| &numbers[(token * SHAPE.layers + layer) * columns..][..columns])
        .copied()
        .collect()
}

/// Computes one layer. Returns the convolved rows and the outputs.
fn compute_layer(
    kernels: &Kernels,
    step: &mut StateStep<'_>,
    parts: &[(&Sequence, StateRun<'_>)],
    index: usize,
) -> [Vec<f32>; 2] {
    let rows = layer(parts, index, |sequence| &sequence.rows, CHANNELS);
    let weights = Random(index as u64).floats(step.shape().taps * CHANNELS);
    let convolution = Convolution { layer: index, weights: &weights, activation: Activation::Silu, rows: &rows };
    let mut mixed = vec![f32::NAN; rows.len()];
    kernels.convolve(step, convolution, &mut mixed).expect("right shapes");
    if !mixed.is_empty() {
        kernels.normalize_queries_and_keys(&SHAPE, &mut mixed).expect("right shapes");
    }
    let decay = layer(parts, index, |sequence| &sequence.decay, SHAPE.value_heads);
    let beta = layer(parts, index, |sequence| &sequence.beta, SHAPE.value_heads);
    let rule = DeltaRule { layer: index, key_heads: KeyHeads::Strided, rows: &mixed, decay: &decay, beta: &beta };
    let mut out = vec![f32::NAN; step.tokens() * SHAPE.value_heads * SHAPE.value_size];
    kernels.recur(step, rule, &mut out).expect("right shapes");
    [mixed, out]
}

/// Computes a step. Returns the bits of each run's results: \[tokens\]\[layers\]\[results\].
fn compute(
    kernels: &Kernels,
    store: &mut StateStore,
    parts: &[(&Sequence, StateRun<'_>)],
) -> Result<Vec<Vec<u32>>, Error> {
    let runs: Vec<StateRun<'_>> = parts.iter().map(|(_, run)| *run).collect();
    let mut step = store.begin(&runs)?;
    let layers: Vec<_> = (0..SHAPE.layers).map(|index| compute_layer(kernels, &mut step, parts, index)).collect();
    step.finish()?;
    let mut tokens = 0..;
    let result = |token: usize| -> Vec<f32> {
        let parts = layers.iter().flatten().map(|numbers| {
            let columns = if numbers.len() == layers[0][0].len() { CHANNELS } else { RESULTS - CHANNELS };
            &numbers[token * columns..][..columns]
        });
        parts.flatten().copied().collect()
    };
    Ok(runs
        .iter()
        .map(|run| tokens.by_ref().take(run.length).flat_map(|token| bits(&result(token))).collect())
        .collect())
}

/// Computes one run. Returns the bits of its results.
fn alone(kernels: &Kernels, store: &mut StateStore, sequence: &Sequence, run: StateRun<'_>) -> Vec<u32> {
    compute(kernels, store, &[(sequence, run)]).expect("a valid run").concat()
}

/// Computes a whole sequence.
fn whole(kernels: &Kernels, sequence: &Sequence, length: usize) -> Vec<u32> {
    alone(kernels, &mut store(), sequence, first(length, 0))
}

/// A run from the start of a sequence.
fn first(length: usize, to: u32) -> StateRun<'static> {
    StateRun { past: 0, length, from: None, to, saves: &[] }
}

/// A run that continues in its slot.
fn next(past: usize, length: usize, slot: u32) -> StateRun<'static> {
    StateRun { past, length, from: Some(slot), to: slot, saves: &[] }
}

const TOKEN: usize = RESULTS * SHAPE.layers;

#[test]
fn results_do_not_depend_on_the_chunks() {
    let sequence = Sequence::new(1, 70);
    // The longer window spans several tasks.
    let cases = [(4, [1, 2, 3, 5, 16, 31, 33, 69].as_slice()), (40, &[1, 33, 35])];
    for (kernels, (taps, sizes)) in KERNELS.iter().flat_map(|kernels| cases.map(|case| (kernels, case))) {
        let store = || StateStore::new(StateShape { taps, ..SHAPE }).expect("memory");
        let expected = alone(&KERNELS[0], &mut store(), &sequence, first(70, 0));
        for &size in sizes {
            let mut store = store();
            let mut found = Vec::new();
            for past in (0..70).step_by(size) {
                let length = size.min(70 - past);
                let run = if past == 0 { first(length, 3) } else { next(past, length, 3) };
                found.extend(alone(kernels, &mut store, &sequence, run));
                assert_eq!(store.position(3), Some(past + length));
            }
            assert!(found == expected, "{taps} taps, chunks of {size}");
        }
    }
}

#[test]
fn a_saved_state_continues_with_the_same_results() {
    let (length, chunk) = (11, 7);
    let sequence = Sequence::new(2, length);
    for kernels in KERNELS.iter() {
        let expected = whole(kernels, &sequence, length);
        let mut store = store();
        alone(kernels, &mut store, &sequence, first(length - chunk, 15));
        let saves: Vec<_> = (0..=chunk).map(|tokens| StateSave { tokens, slot: tokens as u32 }).collect();
        let run = StateRun { saves: &saves, ..next(length - chunk, chunk, 15) };
        assert_eq!(alone(kernels, &mut store, &sequence, run), expected[(length - chunk) * TOKEN..]);
        for save in saves {
            let past = length - chunk + save.tokens;
            assert_eq!(store.position(save.slot), Some(past));
            // The first run leaves the saved state as it is, the second replaces it.
            for to in [14, save.slot] {
                let run = StateRun { to, ..next(past, length - past, save.slot) };
                assert_eq!(alone(kernels, &mut store, &sequence, run), expected[past * TOKEN..], "{save:?} to {to}");
            }
        }
    }
}

#[test]
fn states_of_a_new_sequence_are_saved_after_every_token() {
    let sequence = Sequence::new(3, 12);
    let kernels = &KERNELS[KERNELS.len() - 1];
    let expected = whole(kernels, &sequence, 12);
    let mut store = store();
    let saves: Vec<_> = (0..=12).map(|tokens| StateSave { tokens, slot: 2 + tokens as u32 }).collect();
    alone(kernels, &mut store, &sequence, StateRun { saves: &saves, ..first(12, 0) });
    for save in &saves {
        let run = StateRun { to: 1, ..next(save.tokens, 12 - save.tokens, save.slot) };
        assert_eq!(alone(kernels, &mut store, &sequence, run), expected[save.tokens * TOKEN..], "{save:?}");
    }
}

#[test]
fn a_run_without_tokens_copies_the_state() {
    let sequence = Sequence::new(4, 9);
    let kernels = &KERNELS[0];
    let expected = whole(kernels, &sequence, 9);
    let mut store = store();
    alone(kernels, &mut store, &sequence, first(5, 0));
    for (from, to) in [(0, 1), (1, 1), (1, 2)] {
        alone(kernels, &mut store, &sequence, StateRun { to, ..next(5, 0, from) });
    }
    assert_eq!(alone(kernels, &mut store, &sequence, next(5, 4, 2)), expected[5 * TOKEN..]);
}

#[test]
fn results_depend_neither_on_other_runs_nor_on_threads() {
    let lengths = [40, 1, 2, 33, 9];
    let sequences: Vec<_> = lengths.iter().map(|length| Sequence::new(10 + *length as u64, length + 3)).collect();
    for threads in [1, 3] {
        for level in IsaLevel::available() {
            let kernels = Kernels::new(threads, level);
            let mut together = store();
            let firsts: Vec<_> =
                sequences.iter().zip(lengths).zip(0..).map(|((s, length), slot)| (s, first(length, slot))).collect();
            let mut found = compute(&kernels, &mut together, &firsts).expect("valid runs");
            // Siblings share the state of the first sequence.
            let mut rests: Vec<_> =
                sequences.iter().zip(lengths).zip(0..).map(|((s, length), slot)| (s, next(length, 3, slot))).collect();
            rests[0].1.to = 8;
            rests.push((&sequences[0], StateRun { to: 9, ..next(lengths[0], 3, 0) }));
            let after = compute(&kernels, &mut together, &rests).expect("valid runs");
            assert_eq!(after[0], after[5]);
            found.iter_mut().zip(after).for_each(|(found, after)| found.extend(after));
            for ((sequence, length), found) in sequences.iter().zip(lengths).zip(found) {
                assert!(found == whole(&KERNELS[0], sequence, length + 3), "{length} tokens, {threads} threads");
            }
        }
    }
}

#[test]
fn infinities_and_nan_stay_in_their_run_and_leave_with_it() {
    for value in [f32::INFINITY, f32::NAN] {
        let (good, mut bad) = (Sequence::new(5, 20), Sequence::new(6, 20));
        bad.rows[7 * SHAPE.layers * CHANNELS..][..CHANNELS].fill(value);
        let kernels = &KERNELS[KERNELS.len() - 1];
        let expected = whole(kernels, &good, 20);
        let mut store = store();
        let found = compute(kernels, &mut store, &[(&good, first(20, 0)), (&bad, first(20, 1))]).expect("valid runs");
        assert_eq!(found[0], expected);
        assert!(found[1].contains(&u32::MAX), "not visible");
        assert_eq!(found[1][..7 * TOKEN], whole(kernels, &bad, 20)[..7 * TOKEN]);
        assert_eq!(alone(kernels, &mut store, &good, first(20, 1)), expected, "the slot starts with zeros");
    }
}

#[test]
fn a_slot_has_the_rows_and_states_of_all_layers() {
    // 3 rows, in whole cache lines, and 4 heads of nine panels.
    let layer = (3 * CHANNELS).next_multiple_of(16) + 4 * 9 * 136 * 16;
    assert_eq!(SHAPE.slot_bytes(), Ok(2 * layer * 4));
    assert_eq!(SHAPE.channels(), Ok(CHANNELS));
    assert_eq!(store().position(16), None);
}

//! Runs, calls and shapes that are refused, and steps that do not finish.

use super::super::{KERNELS, bits};
use super::{CHANNELS, RESULTS, SHAPE, Sequence, TOKEN, alone, compute_layer, first, next, store, whole};
use tandem_kernels::{
    Activation, Convolution, DeltaRule, Error, KeyHeads, StateRun, StateSave, StateShape, StateStore,
};

#[test]
fn refused_runs_change_nothing() {
    let sequence = Sequence::new(7, 12);
    let kernels = &KERNELS[0];
    let expected = whole(kernels, &sequence, 12);
    let mut store = store();
    for slot in 0..2 {
        alone(kernels, &mut store, &sequence, first(6, slot));
    }
    let (own, zero) = (next(6, 3, 0), first(3, 2));
    let save = |tokens, slot| StateSave { tokens, slot };
    let position = |slot, expected, found| Error::Position { slot, expected, found };
    let shared = |slot| Error::SharedSlot { slot };
    let out_of_range = |found| Error::Range { subject: "state slot", limit: 16, found };
    let cases: Vec<(Vec<StateRun<'_>>, Option<Error>)> = vec![
        (vec![next(5, 3, 0)], Some(position(0, 5, Some(6)))),
        (vec![own, next(7, 1, 1)], Some(position(1, 7, Some(6)))),
        (vec![StateRun { from: Some(3), ..own }], Some(position(3, 6, None))),
        (vec![StateRun { past: 1, ..zero }], None),
        (vec![StateRun { to: 16, ..own }], Some(out_of_range(16))),
        (vec![StateRun { from: Some(u32::MAX), ..own }], Some(out_of_range(u32::MAX as usize))),
        (vec![StateRun { saves: &[StateSave { tokens: 1, slot: 99 }], ..own }], Some(out_of_range(99))),
        (vec![own, StateRun { to: 0, ..zero }], Some(shared(0))),
        (vec![own, StateRun { from: Some(0), to: 4, ..own }], Some(shared(0))),
        (vec![StateRun { to: 4, ..own }, StateRun { to: 0, ..zero }], Some(shared(0))),
        (vec![StateRun { saves: &[StateSave { tokens: 1, slot: 0 }], ..own }], Some(shared(0))),
        (vec![StateRun { to: 4, saves: &[StateSave { tokens: 1, slot: 0 }], ..own }], Some(shared(0))),
        (vec![own, StateRun { saves: &[StateSave { tokens: 1, slot: 0 }], ..zero }], Some(shared(0))),
        (vec![usize::MAX, usize::MAX - 6].into_iter().map(|length| StateRun { length, ..zero }).collect(), None),
        (vec![StateRun { length: usize::MAX, ..own }], None),
    ];
    for (runs, error) in cases {
        let found = store.begin(&runs).err();
        assert!(found.is_some() && (error.is_none() || found == error), "{runs:?}: {found:?}");
    }
    let wrong =
        [vec![save(1, 5), save(1, 5)], vec![save(2, 5), save(1, 6)], vec![save(4, 5)], vec![save(usize::MAX, 5)]];
    for saves in wrong {
        assert!(store.begin(&[StateRun { saves: &saves, ..own }]).is_err(), "{saves:?}");
    }
    assert_eq!((0..4).map(|slot| store.position(slot)).collect::<Vec<_>>(), [Some(6), Some(6), None, None]);
    for slot in 0..2 {
        assert_eq!(alone(kernels, &mut store, &sequence, next(6, 6, slot)), expected[6 * TOKEN..]);
    }
}

#[test]
fn refused_calls_write_nothing() {
    let sequence = Sequence::new(8, 9);
    let kernels = &KERNELS[0];
    let expected = whole(kernels, &sequence, 9);
    let mut store = store();
    alone(kernels, &mut store, &sequence, first(5, 0));
    let run = next(5, 4, 0);
    let runs = [run];
    let mut step = store.begin(&runs).expect("a valid run");
    let results: Vec<_> = (0..SHAPE.layers)
        .map(|index| {
            for (tokens, layer, weights) in [(3, index, 4), (4, 1 - index, 4), (4, 2, 4), (4, index, 3)] {
                let (rows, mut out) = (vec![1.0; tokens * CHANNELS], vec![0.5; 4 * CHANNELS]);
                let weights = vec![1.0; weights * CHANNELS];
                let convolution = Convolution { layer, weights: &weights, activation: Activation::Silu, rows: &rows };
                assert!(kernels.convolve(&mut step, convolution, &mut out).is_err(), "{tokens} {layer}");
                assert!(kernels.convolve(&mut step, convolution, &mut out[1..]).is_err());
                assert_eq!(out, vec![0.5; 4 * CHANNELS]);
            }
            for (tokens, layer, gates) in
                [(3, index, [16; 2]), (4, 1 - index, [16; 2]), (4, index, [16, 15]), (4, index, [15; 2])]
            {
                let (rows, mut out) = (vec![1.0; tokens * CHANNELS], vec![0.5; 4 * 4 * 136]);
                let [decay, beta] = gates.map(|count| vec![1.0; count]);
                let key_heads = KeyHeads::Adjacent;
                let rule = DeltaRule { layer, key_heads, rows: &rows, decay: &decay, beta: &beta };
                assert!(kernels.recur(&mut step, rule, &mut out).is_err(), "{tokens} {layer} {gates:?}");
                assert_eq!(out, vec![0.5; 4 * 4 * 136]);
            }
            compute_layer(kernels, &mut step, &[(&sequence, run)], index)
        })
        .collect();
    step.finish().expect("all layers are done");
    let found: Vec<f32> = (0..4)
        .flat_map(|token| {
            let layers = results.iter().flat_map(move |[mixed, out]| [(mixed, CHANNELS), (out, RESULTS - CHANNELS)]);
            layers.flat_map(move |(numbers, columns)| &numbers[token * columns..][..columns])
        })
        .copied()
        .collect();
    assert_eq!(bits(&found), expected[5 * TOKEN..]);
}

#[test]
fn slots_of_an_unfinished_step_hold_no_state() {
    let sequence = Sequence::new(9, 5);
    let kernels = &KERNELS[0];
    let mut store = store();
    for slot in 0..3 {
        alone(kernels, &mut store, &sequence, first(3, slot));
    }
    let saves = [StateSave { tokens: 1, slot: 2 }];
    let runs = [StateRun { to: 1, saves: &saves, ..next(3, 2, 0) }];
    let mut step = store.begin(&runs).expect("a valid run");
    compute_layer(kernels, &mut step, &[(&sequence, runs[0])], 0);
    drop(step);
    assert_eq!([0, 1, 2].map(|slot| store.position(slot)), [Some(3), None, None]);
    let refused = store.begin(&[next(5, 1, 1)]).err();
    assert_eq!(refused, Some(Error::Position { slot: 1, expected: 5, found: None }));
}

#[test]
fn a_step_without_all_layers_does_not_finish() {
    let kernels = &KERNELS[0];
    let mut store = store();
    for (convolutions, recurrences, finishes) in [(0, 0, false), (2, 1, false), (1, 2, false), (2, 2, true)] {
        let runs = [first(1, 0)];
        let mut step = store.begin(&runs).expect("a valid run");
        let (rows, weights, mut mixed) = (vec![1.0; CHANNELS], vec![1.0; 4 * CHANNELS], vec![0.0; CHANNELS]);
        for layer in 0..convolutions {
            let convolution = Convolution { layer, weights: &weights, activation: Activation::Silu, rows: &rows };
            kernels.convolve(&mut step, convolution, &mut mixed).expect("right shapes");
        }
        for layer in 0..recurrences {
            let key_heads = KeyHeads::Adjacent;
            let rule = DeltaRule { layer, key_heads, rows: &rows, decay: &[1.0; 4], beta: &[1.0; 4] };
            kernels.recur(&mut step, rule, &mut [0.0; 4 * 136]).expect("right shapes");
        }
        assert_eq!(step.finish().is_ok(), finishes, "{convolutions} {recurrences}");
        assert_eq!(store.position(0), finishes.then_some(1));
    }
}

#[test]
fn stores_of_impossible_shapes_are_rejected() {
    let multiple = |subject, of, found| Some(Error::Multiple { subject, of, found });
    let refused = |shape: StateShape| StateStore::new(shape).err();
    assert_eq!(refused(StateShape { taps: 0, ..SHAPE }), multiple("taps", 1, 0));
    assert_eq!(refused(StateShape { key_size: 12, ..SHAPE }), multiple("key size", 8, 12));
    assert_eq!(refused(StateShape { value_size: 0, ..SHAPE }), multiple("value size", 8, 0));
    assert_eq!(refused(StateShape { key_heads: 0, ..SHAPE }), multiple("key heads", 1, 0));
    assert_eq!(refused(StateShape { value_heads: 5, ..SHAPE }), multiple("value heads", 2, 5));
    assert!(matches!(refused(StateShape { slots: 1 << 40, ..SHAPE }), Some(Error::Memory { .. })));
    for shape in [
        StateShape { layers: usize::MAX, ..SHAPE },
        StateShape { slots: usize::MAX, ..SHAPE },
        StateShape { taps: usize::MAX, ..SHAPE },
        StateShape { key_size: 1 << 61, ..SHAPE },
        StateShape { value_size: usize::MAX - 7, ..SHAPE },
        StateShape { slots: usize::MAX, layers: 0, ..SHAPE },
    ] {
        assert!(matches!(refused(shape), Some(Error::Memory { .. })), "{shape:?}");
    }
}

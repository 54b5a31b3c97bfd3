//! The operations of linear attention layers, compared with their definitions.

use super::{KERNELS, Random, bits, check_close};
use tandem_kernels::{
    Activation, Convolution, DeltaRule, Gates, IsaLevel, Kernels, KeyHeads, Norm, StateRun, StateShape, StateStore,
    by_tap,
};

fn sigmoid(x: f64) -> f64 {
    1.0 / (1.0 + (-x).exp())
}

/// Returns numbers between -`limit` and `limit`, most of them small.
fn inputs(seed: u64, count: usize, limit: f32) -> Vec<f32> {
    Random(seed).floats(count).iter().map(|x| x * x * x * limit).collect()
}

/// Calls `compute` with the kernels of every level, and fails unless the results have the same bits.
#[track_caller]
fn on_every_level(compute: impl Fn(&Kernels) -> Vec<f32>) -> Vec<f32> {
    let first = compute(&KERNELS[0]);
    for kernels in KERNELS.iter() {
        assert_eq!(bits(&compute(kernels)), bits(&first), "ISA levels differ");
    }
    assert_eq!(bits(&compute(&Kernels::new(1, IsaLevel::detect()))), bits(&first), "threads differ");
    first
}

#[test]
fn numbers_are_multiplied_by_the_sigmoid_of_their_gates() {
    for count in [1, 7, 24, 5_003] {
        let (x, gate) = (Random(1).floats(count), inputs(2, count, 90.0));
        let found = on_every_level(|kernels| {
            let mut out = x.clone();
            kernels.gate(&mut out, &gate).expect("right shapes");
            out
        });
        let expected: Vec<f64> = x.iter().zip(&gate).map(|(x, gate)| f64::from(*x) * sigmoid((*gate).into())).collect();
        check_close(&found, &expected, "gate", |i| expected[i].abs() * 1e-6 + 1e-38);
        let found = on_every_level(|kernels| {
            let mut out = gate.clone();
            kernels.sigmoid(&mut out);
            out
        });
        let expected: Vec<f64> = gate.iter().map(|gate| sigmoid((*gate).into())).collect();
        check_close(&found, &expected, "sigmoid", |i| expected[i] * 1e-6 + 1e-38);
    }
}

#[test]
fn decays_and_update_rates_match_their_definitions() {
    for (tokens, heads) in [(1, 1), (3, 6), (5, 8), (200, 19)] {
        let (a, b) = (inputs(1, tokens * heads, 100.0), inputs(2, tokens * heads, 50.0));
        let rate: Vec<f32> = inputs(3, heads, 30.0).iter().map(|rate| rate.abs() + 1e-3).collect();
        let bias = Random(4).floats(heads);
        let found = on_every_level(|kernels| {
            let (mut decay, mut beta) = (vec![f32::NAN; a.len()], vec![f32::NAN; a.len()]);
            kernels.gates(Gates { a: &a, b: &b, rate: &rate, bias: &bias }, &mut decay, &mut beta).expect("shapes");
            [decay, beta].concat()
        });
        let exponents: Vec<f64> = (0..a.len())
            .map(|i| f64::from(rate[i % heads]) * f64::from(a[i] + bias[i % heads]).exp().ln_1p())
            .collect();
        let (decay, beta) = found.split_at(a.len());
        let expected: Vec<f64> = exponents.iter().map(|exponent| (-exponent).exp()).collect();
        check_close(decay, &expected, "decay", |i| expected[i] * (exponents[i] + 1.0) * 1e-6 + 2e-38);
        let expected: Vec<f64> = b.iter().map(|b| sigmoid((*b).into())).collect();
        check_close(beta, &expected, "update rate", |i| expected[i] * 1e-6);
    }
}

#[test]
fn tiny_exponents_of_decays_keep_their_precision() {
    let a: Vec<f32> = (0..86).map(|i| -(i as f32)).collect();
    let found = on_every_level(|kernels| {
        a.iter()
            .map(|a| {
                let (mut decay, mut beta) = ([0.0], [0.0]);
                let rate = [a.abs().exp()];
                let gates = Gates { a: &[*a], b: &[0.0], rate: &rate, bias: &[0.0] };
                kernels.gates(gates, &mut decay, &mut beta).expect("right shapes");
                decay[0]
            })
            .collect()
    });
    let exponent = |a: f32| f64::from(a.abs().exp()) * f64::from(a).exp().ln_1p();
    let expected: Vec<f64> = a.iter().map(|a| (-exponent(*a)).exp()).collect();
    check_close(&found, &expected, "decay", |_| 3e-7);
}

#[test]
fn infinities_and_nan_of_gates_have_defined_results() {
    let found = on_every_level(|kernels| {
        let a = [f32::INFINITY, f32::NEG_INFINITY, f32::NAN, 0.0];
        let (mut decay, mut beta) = ([0.5; 4], [0.5; 4]);
        kernels.gates(Gates { a: &a, b: &a, rate: &[1.0], bias: &[0.0] }, &mut decay, &mut beta).expect("shapes");
        [decay, beta].concat()
    });
    assert_eq!(bits(&found[..3]), bits(&[0.0, 1.0, f32::NAN]));
    assert!((found[3] - 0.5).abs() < 1e-6);
    assert_eq!((found[4], found[7]), (1.0, 0.5));
    assert!(found[5] < 1e-38 && found[6].is_nan());
}

#[test]
fn gated_norms_multiply_by_the_weight_and_by_silu() {
    for (rows, columns) in [(1, 8), (3, 24), (70, 128)] {
        let (x, z) = (Random(1).floats(rows * columns), inputs(2, rows * columns, 40.0));
        let weight = Random(3).floats(columns);
        for epsilon in [1e-6, 0.5] {
            let found = on_every_level(|kernels| {
                let mut out = x.clone();
                let norm = Norm { weight: &weight, epsilon, offset: 0.0 };
                kernels.norm_gated(&mut out, norm, &z).expect("right shapes");
                out
            });
            let mut expected = Vec::new();
            for (x, z) in x.chunks_exact(columns).zip(z.chunks_exact(columns)) {
                let mean = x.iter().map(|x| f64::from(*x).powi(2)).sum::<f64>() / columns as f64;
                let inverse = 1.0 / (mean + f64::from(epsilon)).sqrt();
                let gate = |i: usize| f64::from(z[i]) * sigmoid(z[i].into());
                expected.extend((0..columns).map(|i| f64::from(x[i]) * inverse * f64::from(weight[i]) * gate(i)));
            }
            check_close(&found, &expected, "gated norm", |i| expected[i].abs() * 2e-6 + 1e-30);
        }
    }
}

const SHAPE: StateShape =
    StateShape { layers: 1, slots: 1, taps: 4, key_heads: 2, value_heads: 6, key_size: 24, value_size: 40 };

/// Shapes with one head and with several, with whole panels and with half panels.
fn shapes() -> [StateShape; 5] {
    [
        SHAPE,
        StateShape { key_heads: 1, value_heads: 1, key_size: 8, value_size: 8, taps: 1, ..SHAPE },
        StateShape { key_heads: 3, value_heads: 3, key_size: 16, value_size: 16, taps: 2, ..SHAPE },
        StateShape { key_heads: 4, value_heads: 8, key_size: 32, value_size: 32, taps: 5, ..SHAPE },
        StateShape { key_heads: 2, value_heads: 4, key_size: 128, value_size: 136, taps: 3, ..SHAPE },
    ]
}

fn channels(shape: &StateShape) -> usize {
    2 * shape.key_heads * shape.key_size + shape.value_heads * shape.value_size
}

#[test]
fn query_and_key_heads_are_normalized_and_values_stay() {
    for shape in shapes() {
        let (columns, size) = (channels(&shape), shape.key_size);
        let keys = shape.key_heads * size;
        let mut rows = inputs(1, 20 * columns, 5.0);
        rows[columns..][..size].fill(0.0);
        let found = on_every_level(|kernels| {
            let mut rows = rows.clone();
            kernels.normalize_queries_and_keys(&shape, &mut rows).expect("right shapes");
            rows
        });
        let mut expected: Vec<f64> = rows.iter().map(|x| f64::from(*x)).collect();
        for row in expected.chunks_exact_mut(columns) {
            for (head, x) in row[..2 * keys].chunks_exact_mut(size).enumerate() {
                let inverse = 1.0 / (x.iter().map(|x| x * x).sum::<f64>() + 1e-6).sqrt();
                let factor = if head < shape.key_heads { (size as f64).powf(-0.5) } else { 1.0 };
                x.iter_mut().for_each(|x| *x *= inverse * factor);
            }
            row[2 * keys..].iter_mut().for_each(|x| *x = f64::from(*x as f32));
        }
        check_close(&found, &expected, "l2 norm", |i| expected[i].abs() * 1e-6);
        assert_eq!(found[columns..][..size], vec![0.0; size]);
    }
}

/// Runs a step over one sequence that starts in slot 0.
fn step<T>(shape: StateShape, length: usize, compute: impl Fn(&mut tandem_kernels::StateStep<'_>) -> T) -> T {
    let mut store = StateStore::new(shape).expect("memory");
    let runs = [StateRun { past: 0, length, from: None, to: 0, saves: &[] }];
    compute(&mut store.begin(&runs).expect("a new sequence"))
}

#[test]
fn convolutions_match_their_definition() {
    for (shape, activation) in shapes().into_iter().zip([Activation::Silu, Activation::GeluTanh].into_iter().cycle()) {
        let (columns, taps, length) = (channels(&shape), shape.taps, 75);
        let (rows, weights) = (Random(1).floats(length * columns), Random(2).floats(columns * taps));
        let by_tap = by_tap(&weights, taps);
        let found = on_every_level(|kernels| {
            step(shape, length, |step| {
                let mut out = vec![f32::NAN; rows.len()];
                let convolution = Convolution { layer: 0, weights: &by_tap, activation, rows: &rows };
                kernels.convolve(step, convolution, &mut out).expect("right shapes");
                out
            })
        });
        let expected: Vec<f64> = (0..rows.len())
            .map(|i| {
                let (token, channel) = (i / columns, i % columns);
                let taps = (0..taps).filter(|tap| token + tap + 1 >= taps);
                let sum = taps.map(|tap| {
                    let row = token + tap + 1 - shape.taps;
                    f64::from(weights[channel * shape.taps + tap]) * f64::from(rows[row * columns + channel])
                });
                activate(activation, sum.sum())
            })
            .collect();
        check_close(&found, &expected, "convolution", |_| 2e-6);
    }
}

fn activate(activation: Activation, x: f64) -> f64 {
    match activation {
        Activation::Silu => x * sigmoid(x),
        Activation::GeluTanh => {
            let inner = (2.0 / std::f64::consts::PI).sqrt() * (x + 0.044_715 * x.powi(3));
            x / 2.0 * (1.0 + inner.tanh())
        }
    }
}

/// The inputs of a recurrence, with queries and keys of length one.
struct Inputs {
    rows: Vec<f32>,
    decay: Vec<f32>,
    beta: Vec<f32>,
}

impl Inputs {
    fn new(shape: &StateShape, length: usize) -> Self {
        let mut random = Random(shape.value_size as u64);
        let mut rows = random.floats(length * channels(shape));
        KERNELS[0].normalize_queries_and_keys(shape, &mut rows).expect("right shapes");
        let mut gates = |least: f32| -> Vec<f32> {
            let numbers = random.floats(length * shape.value_heads);
            numbers.iter().map(|x| least + (1.0 - least) * (x + 1.0) / 2.0).collect()
        };
        Self { rows, decay: gates(0.8), beta: gates(0.0) }
    }

    fn rule(&self, key_heads: KeyHeads) -> DeltaRule<'_> {
        DeltaRule { layer: 0, key_heads, rows: &self.rows, decay: &self.decay, beta: &self.beta }
    }
}

/// The recurrence in f64, as transformers writes it: decay, read, correct, read again.
fn reference(shape: &StateShape, rule: DeltaRule<'_>) -> Vec<f64> {
    let StateShape { key_heads, value_heads, key_size, value_size, .. } = *shape;
    let length = rule.decay.len() / value_heads;
    let mut out = vec![0.0; length * value_heads * value_size];
    for head in 0..value_heads {
        let key_head = match rule.key_heads {
            KeyHeads::Adjacent => head / (value_heads / key_heads),
            KeyHeads::Strided => head % key_heads,
        };
        let mut state = vec![vec![0.0; value_size]; key_size];
        for token in 0..length {
            let row = &rule.rows[token * channels(shape)..][..channels(shape)];
            let query = |i: usize| f64::from(row[key_head * key_size + i]);
            let key = |i: usize| f64::from(row[(key_heads + key_head) * key_size + i]);
            let value = |j: usize| f64::from(row[2 * key_heads * key_size + head * value_size + j]);
            let [decay, beta] = [rule.decay, rule.beta].map(|gate| f64::from(gate[token * value_heads + head]));
            state.iter_mut().flatten().for_each(|number| *number *= decay);
            for j in 0..value_size {
                let known: f64 = (0..key_size).map(|i| state[i][j] * key(i)).sum();
                let correction = (value(j) - known) * beta;
                (0..key_size).for_each(|i| state[i][j] += key(i) * correction);
                let read = (0..key_size).map(|i| state[i][j] * query(i)).sum();
                out[(token * value_heads + head) * value_size + j] = read;
            }
        }
    }
    out
}

fn recur(kernels: &Kernels, shape: StateShape, length: usize, rule: DeltaRule<'_>) -> Vec<f32> {
    step(shape, length, |step| {
        let mut out = vec![f32::NAN; length * shape.value_heads * shape.value_size];
        kernels.recur(step, rule, &mut out).expect("right shapes");
        out
    })
}

#[test]
fn recurrences_match_their_definition() {
    for shape in shapes() {
        for key_heads in [KeyHeads::Adjacent, KeyHeads::Strided] {
            let length = 60;
            let inputs = Inputs::new(&shape, length);
            let expected = reference(&shape, inputs.rule(key_heads));
            let found = on_every_level(|kernels| recur(kernels, shape, length, inputs.rule(key_heads)));
            check_close(&found, &expected, &format!("{shape:?}, {key_heads:?}"), |_| 1e-6);
        }
    }
}

#[test]
fn strided_heads_are_adjacent_heads_in_another_order() {
    let (length, group) = (9, SHAPE.value_heads / SHAPE.key_heads);
    let adjacent = Inputs::new(&SHAPE, length);
    let place = |head: usize| head % group * SHAPE.key_heads + head / group;
    let reordered = |numbers: &[f32], size: usize| {
        let mut out = numbers.to_vec();
        for (new, old) in out.chunks_exact_mut(SHAPE.value_heads * size).zip(numbers.chunks_exact(6 * size)) {
            for (head, numbers) in old.chunks_exact(size).enumerate() {
                new[place(head) * size..][..size].copy_from_slice(numbers);
            }
        }
        out
    };
    let mut strided = Inputs {
        rows: adjacent.rows.clone(),
        decay: reordered(&adjacent.decay, 1),
        beta: reordered(&adjacent.beta, 1),
    };
    for row in strided.rows.chunks_exact_mut(channels(&SHAPE)) {
        let values = &mut row[2 * SHAPE.key_heads * SHAPE.key_size..];
        let new = reordered(values, SHAPE.value_size);
        values.copy_from_slice(&new);
    }
    let found = recur(&KERNELS[0], SHAPE, length, strided.rule(KeyHeads::Strided));
    let expected = recur(&KERNELS[0], SHAPE, length, adjacent.rule(KeyHeads::Adjacent));
    assert_eq!(bits(&found), bits(&reordered(&expected, SHAPE.value_size)));
}

#[test]
fn calls_for_linear_attention_with_wrong_shapes_are_rejected() {
    let kernels = &KERNELS[0];
    assert!(kernels.gate(&mut [0.0; 8], &[0.0; 7]).is_err());
    let norm = |weight| Norm { weight, epsilon: 1e-6, offset: 0.0 };
    assert!(kernels.norm_gated(&mut [0.0; 8], norm(&[1.0; 8]), &[0.0; 9]).is_err());
    assert!(kernels.norm_gated(&mut [0.0; 8], norm(&[1.0; 3]), &[0.0; 8]).is_err());
    assert!(kernels.norm_gated(&mut [0.0; 8], norm(&[]), &[0.0; 8]).is_err());
    let gates = |counts: [usize; 6]| {
        let [a, b, rate, bias, decay, beta] = counts.map(|count| vec![0.5; count]);
        let (mut decay, mut beta) = (decay, beta);
        kernels.gates(Gates { a: &a, b: &b, rate: &rate, bias: &bias }, &mut decay, &mut beta).is_ok()
    };
    assert!(gates([6, 6, 3, 3, 6, 6]));
    for wrong in 0..6 {
        let mut counts = [6, 6, 3, 3, 6, 6];
        counts[wrong] += 1;
        assert!(!gates(counts), "{counts:?}");
    }
    assert!(!gates([6, 6, 0, 0, 6, 6]));
    let columns = channels(&SHAPE);
    assert!(kernels.normalize_queries_and_keys(&SHAPE, &mut vec![0.0; columns - 1]).is_err());
    assert!(kernels.normalize_queries_and_keys(&StateShape { key_size: 4, ..SHAPE }, &mut vec![0.0; columns]).is_err());
    let huge = StateShape { key_size: 1 << 62, ..SHAPE };
    assert!(kernels.normalize_queries_and_keys(&huge, &mut vec![0.0; columns]).is_err());
}

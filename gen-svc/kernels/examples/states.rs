//! Times the kernels of a linear attention layer: `states [threads] [level]`.
#![allow(clippy::print_stdout, clippy::unwrap_used)]

use std::time::Instant;

use tandem_kernels::*;

const LAYERS: usize = 30;

fn main() {
    let mut arguments = std::env::args().skip(1);
    let threads: usize = arguments.next().map_or(2, |text| text.parse().unwrap());
    let level = arguments.next().map_or(IsaLevel::detect(), |name| IsaLevel::named(&name).unwrap());
    let kernels = Kernels::new(threads, level);
    let shape = StateShape {
        layers: LAYERS,
        slots: 9,
        taps: 4,
        key_heads: 16,
        value_heads: 32,
        key_size: 128,
        value_size: 128,
    };
    println!("{} threads, {}, slot {} MiB", threads, level.name(), shape.slot_bytes().unwrap() >> 20);
    for (sequences, length, repeats) in [(1, 1, 60), (8, 1, 30), (1, 512, 2)] {
        measure(&kernels, shape, sequences, length, repeats);
    }
}

fn numbers(count: usize, scale: f32) -> Vec<f32> {
    let mut seed = 1_u32;
    let mut next = || {
        seed = seed.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        ((seed >> 8) as f32 / (1 << 23) as f32 - 1.0) * scale
    };
    (0..count).map(|_| next()).collect()
}

fn measure(kernels: &Kernels, shape: StateShape, sequences: usize, length: usize, repeats: usize) {
    let mut store = StateStore::new(shape).unwrap();
    let (tokens, channels) = (sequences * length, shape.channels().unwrap());
    let (heads, values) = (shape.value_heads, shape.value_heads * shape.value_size);
    let raw = numbers(tokens * channels, 1.0);
    let weights = by_tap(&numbers(channels * 4, 1.0), 4);
    let (a, b, z) = (numbers(tokens * heads, 1.0), numbers(tokens * heads, 1.0), numbers(tokens * values, 1.0));
    let (rate, bias) = (vec![0.05; heads], vec![0.1; heads]);
    let norm_weight = vec![1.0; shape.value_size];
    let mut mixed = vec![0.0; tokens * channels];
    let (mut decay, mut beta, mut out) =
        (vec![0.0; tokens * heads], vec![0.0; tokens * heads], vec![0.0; tokens * values]);
    let names = ["convolve", "l2", "gates", "recur", "norm_gated"];
    let mut best = [f64::INFINITY; 5];
    for step in 0..repeats {
        let runs: Vec<StateRun<'_>> = (0..sequences as u32)
            .map(|slot| StateRun {
                past: step * length,
                length,
                from: (step > 0).then_some(slot),
                to: slot,
                saves: &[],
            })
            .collect();
        let mut step = store.begin(&runs).unwrap();
        let mut times = [0.0; 5];
        for layer in 0..LAYERS {
            let mut start = Instant::now();
            let mut lap = |i: usize| {
                times[i] += start.elapsed().as_secs_f64();
                start = Instant::now();
            };
            let activation = Activation::Silu;
            let convolution = Convolution { layer, weights: &weights, activation, rows: &raw };
            kernels.convolve(&mut step, convolution, &mut mixed).unwrap();
            lap(0);
            kernels.normalize_queries_and_keys(&shape, &mut mixed).unwrap();
            lap(1);
            kernels.gates(Gates { a: &a, b: &b, rate: &rate, bias: &bias }, &mut decay, &mut beta).unwrap();
            lap(2);
            let rule = DeltaRule { layer, key_heads: KeyHeads::Adjacent, rows: &mixed, decay: &decay, beta: &beta };
            kernels.recur(&mut step, rule, &mut out).unwrap();
            lap(3);
            let norm = Norm { weight: &norm_weight, epsilon: 1e-6, offset: 0.0 };
            kernels.norm_gated(&mut out, norm, &z).unwrap();
            lap(4);
        }
        step.finish().unwrap();
        for i in 0..5 {
            best[i] = best[i].min(times[i] / LAYERS as f64);
        }
    }
    let state = (sequences * heads * shape.key_size * shape.value_size * 4) as f64;
    println!("{sequences} x {length} tokens, microseconds per layer:");
    for (name, time) in names.iter().zip(best) {
        println!("  {name:12} {:10.1}", time * 1e6);
    }
    println!("  state read and written: {:.1} GB/s", 2.0 * state / best[3] / 1e9);
    println!("  per token: {:.2} us in recur, sum {}", best[3] * 1e6 / tokens as f64, out.iter().sum::<f32>());
}

//! The product rate of a processor, for benchmarks.

use std::hint::black_box;
use std::thread;
use std::time::Instant;

use crate::isa::{Arithmetic, Isa, IsaLevel, Kernel, LANES, PairKernel, Pairs, Quads, Sums, WIDE, Wide};
use crate::pack::Target;

/// Products per lane of an instruction: of floats, of pairs of bf16, of four bytes.
const PER_LANE: [usize; 3] = [1, 2, 4];
const ROUNDS: usize = 1 << 20;
const TRIES: usize = 3;

/// Returns the products per second that the instructions for matrices of a target reach on all threads, with all
/// numbers in registers. Integers count as floats at a level without products of four bytes.
#[must_use]
pub fn peak_products(level: IsaLevel, target: Target, threads: usize) -> f64 {
    let one_try = || {
        let start = Instant::now();
        let products: usize = thread::scope(|scope| {
            let threads: Vec<_> = (0..threads).map(|_| scope.spawn(move || products(level, target))).collect();
            threads.into_iter().filter_map(|thread| thread.join().ok()).sum()
        });
        products as f64 / start.elapsed().as_secs_f64()
    };
    (0..TRIES).map(|_| one_try()).fold(0.0, f64::max)
}

/// Computes many products, and returns their number.
fn products(level: IsaLevel, target: Target) -> usize {
    match target {
        Target::Bf16 => {
            level.run_pairs(PairLoop);
            PER_LANE[1] * WIDE * CHAINS * ROUNDS
        }
        Target::Keep | Target::F32 => level.run(FloatLoop),
        Target::Int8 | Target::Int4 => level.run(ByteLoop),
    }
}

/// Independent sums: enough to hide the latency of an instruction, and few enough for 16 registers.
const CHAINS: usize = 12;

struct FloatLoop;

impl Kernel for FloatLoop {
    type Output = usize;

    #[inline(always)]
    fn run<I: Isa>(self, isa: I) -> usize {
        // Two registers hold sixteen lanes at the levels with few registers.
        if I::REGISTERS > 16 { floats::<I, CHAINS>(isa) } else { floats::<I, { CHAINS / 2 }>(isa) }
    }
}

#[inline(always)]
fn floats<I: Isa, const N: usize>(isa: I) -> usize {
    let (a, b): (I::W, I::W) = (isa.splat(black_box(0.5)), isa.splat(black_box(0.25)));
    let mut sums: [I::W; N] = [isa.splat(0.0); N];
    for _ in 0..ROUNDS {
        for sum in &mut sums {
            *sum = isa.fma(a, b, *sum);
        }
    }
    for sum in sums {
        keep(isa, sum);
    }
    PER_LANE[0] * WIDE * N * ROUNDS
}

struct ByteLoop;

impl Kernel for ByteLoop {
    type Output = usize;

    #[inline(always)]
    fn run<I: Isa>(self, isa: I) -> usize {
        let Some(quads) = isa.quads() else { return FloatLoop.run(isa) };
        let codes = quads.join(black_box(&[3; 4 * LANES]), black_box(&[5; 4 * LANES]));
        let x = black_box([1; 4]);
        let mut sums = [quads.splat(0); CHAINS];
        for _ in 0..ROUNDS {
            for sum in &mut sums {
                *sum = quads.add(*sum, codes, x);
            }
        }
        for sum in sums {
            keep(isa, quads.floats(sum));
        }
        PER_LANE[2] * WIDE * CHAINS * ROUNDS
    }
}

struct PairLoop;

impl PairKernel for PairLoop {
    #[inline(always)]
    fn run<P: Pairs>(self, pairs: P) {
        let isa = pairs.isa();
        let panel = black_box([[0x3f00; 2]; LANES]);
        let (weights, x) = (pairs.weights([&panel, &panel]), pairs.splat(black_box([0x3e80; 2])));
        let zero: Sums<P> = isa.splat(0.0);
        let mut sums = [zero; CHAINS];
        for _ in 0..ROUNDS {
            for sum in &mut sums {
                *sum = pairs.add(*sum, weights, x);
            }
        }
        for sum in sums {
            keep(isa, sum);
        }
    }
}

/// Keeps the compiler from leaving out the computation of a sum.
#[inline(always)]
fn keep<I: Wide>(isa: I, sum: I::W) {
    let mut lanes = [0.0; WIDE];
    isa.wide_store(sum, &mut lanes);
    black_box(lanes);
}

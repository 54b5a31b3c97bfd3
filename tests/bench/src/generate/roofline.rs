//! Where the time of a step goes: the products, the attention and the rest of each phase, and how much of the machine's
//! bandwidth and product rate they reach.

mod decoder;

use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use tandem_kernels::{ClockPart, IsaLevel, KvRun, POSITIONS, Target, peak_products};

use super::bandwidth::Bandwidth;
use crate::machine;
use crate::progress::progress;
use crate::stats::digits;
use decoder::{CONTEXT, Decoder};

/// The sequences of a step, the positions before it, its new tokens per sequence, and its repetitions.
const PHASES: [(usize, usize, usize, usize); 7] = [
    (1, 40, 1, 60),
    (1, 1_000, 1, 30),
    (8, 40, 1, 30),
    (8, 1_000, 1, 10),
    (32, 40, 1, 10),
    (1, 0, 512, 5),
    (1, 0, CONTEXT, 1),
];
const FORMATS: [(&str, Target); 3] = [("f32", Target::F32), ("bf16", Target::Bf16), ("4 bits", Target::Int4)];
const MAX_SEQUENCES: usize = 32;

pub(super) fn measure() -> Result<()> {
    let (level, threads) = (IsaLevel::detect(), machine::cores());
    println!("\nroofline of SmolLM2-135M's sizes with synthetic weights, {threads} threads, level {}", level.name());
    let mut bandwidth = Bandwidth::default();
    (0..3).for_each(|_| bandwidth.measure());
    println!("  memory bandwidth {} GB/s", digits(bandwidth.best() / 1e9));
    println!("  times in ms of the fastest step; wait: for the other threads, within the other times; weights in MB");
    for (name, target) in FORMATS {
        progress(name);
        let peak = peak_products(level, target, threads);
        println!("\n  {name}: product rate of the processor {} GMAC/s", digits(peak / 1e9));
        println!(
            "  {:>20} {:>9} {:>9} {:>9} {:>9} {:>9} {:>9} {:>7} {:>9} {:>10} {:>10}",
            "step",
            "tokens/s",
            "ms",
            "products",
            "attention",
            "norms",
            "rest",
            "wait",
            "weights",
            "bandwidth",
            "products"
        );
        let blocks = MAX_SEQUENCES * CONTEXT.min(1_024) / POSITIONS + CONTEXT / POSITIONS;
        let mut decoder = Decoder::new(target, level, threads, blocks).context("a decoder")?;
        for phase in PHASES {
            let best = fastest(&mut decoder, phase)?;
            print(&decoder, phase, &best, bandwidth.best(), peak);
        }
    }
    Ok(())
}

/// The times of a step.
struct Step {
    whole: Duration,
    parts: [Duration; ClockPart::ALL.len()],
    waits: Duration,
}

/// Returns the runs of a phase. `blocks` are those of each sequence.
fn runs(blocks: &[Vec<u32>], past: usize, length: usize) -> Vec<KvRun<'_>> {
    blocks.iter().map(|blocks| KvRun { past, length, blocks }).collect()
}

fn blocks(sequences: usize, positions: usize) -> Vec<Vec<u32>> {
    let each = positions.div_ceil(POSITIONS) as u32;
    (0..sequences as u32).map(|sequence| (sequence * each..(sequence + 1) * each).collect()).collect()
}

fn fastest(decoder: &mut Decoder, (sequences, past, length, steps): (usize, usize, usize, usize)) -> Result<Step> {
    let blocks = blocks(sequences, past + length);
    let runs = runs(&blocks, past, length);
    let ids = |length: usize| -> Vec<u32> { (0..sequences * length).map(|i| (i * 7_919 % 49_152) as u32).collect() };
    if past > 0 {
        decoder.step(&ids(past), &self::runs(&blocks, 0, past)).context("a prompt")?;
        take_times(decoder);
    }
    let ids = ids(length);
    let mut best: Option<Step> = None;
    for _ in 0..steps {
        let start = Instant::now();
        decoder.step(&ids, &runs).context("a step")?;
        let whole = start.elapsed();
        let (parts, waits) = take_times(decoder);
        if best.as_ref().is_none_or(|best| whole < best.whole) {
            best = Some(Step { whole, parts, waits });
        }
    }
    best.context("a phase without steps")
}

/// Returns the times of each part and of waiting since the last call.
fn take_times(decoder: &Decoder) -> ([Duration; ClockPart::ALL.len()], Duration) {
    (ClockPart::ALL.map(|part| decoder.kernels.take_time(part)), decoder.kernels.team().take_waits())
}

fn print(
    decoder: &Decoder,
    (sequences, past, length, _): (usize, usize, usize, usize),
    step: &Step,
    bandwidth: f64,
    peak: f64,
) {
    let Step { whole, parts, waits } = step;
    let ms = |time: Duration| digits(time.as_secs_f64() * 1e3);
    let of = |part: ClockPart| parts[part as usize];
    let (products, attention, norms) = (of(ClockPart::Products), of(ClockPart::Attention), of(ClockPart::Norms));
    let blocks = blocks(sequences, past + length);
    let counts = Decoder::products(&runs(&blocks, past, length));
    let share = |count: f64, time: Duration, rate: f64| format!("{:.0} %", count / time.as_secs_f64() / rate * 100.0);
    println!(
        "  {:>20} {:>9} {:>9} {:>9} {:>9} {:>9} {:>9} {:>7} {:>9} {:>10} {:>10}",
        format!("{sequences} x {length} after {past}"),
        digits((sequences * length) as f64 / whole.as_secs_f64()),
        ms(*whole),
        ms(products),
        ms(attention),
        ms(norms),
        ms(whole.saturating_sub(products + attention + norms)),
        ms(*waits),
        digits(decoder.bytes() as f64 / 1e6),
        share(decoder.bytes() as f64, *whole, bandwidth),
        share((counts[0] + counts[1]) as f64, *whole, peak),
    );
}

//! The machine's memory bandwidth, and the share of it that decode at batch 1 uses.

use std::hint::black_box;
use std::thread;
use std::time::Instant;

use super::system::System;
use super::table::Table;
use crate::machine;
use crate::progress::progress;
use crate::stats::digits;

/// Size of the buffer, larger than any cache.
const BYTES: usize = 512 << 20;
const PASSES: usize = 5;

/// The measured bandwidths, in bytes per second.
#[derive(Debug, Default)]
pub(super) struct Bandwidth(Vec<f64>);

impl Bandwidth {
    /// Measures the bandwidth. Each thread reads its part of a buffer.
    pub(super) fn measure(&mut self) {
        progress("memory bandwidth");
        let words = vec![1u64; BYTES / size_of::<u64>()];
        let pass = |_| {
            let start = Instant::now();
            black_box(read(&words));
            BYTES as f64 / start.elapsed().as_secs_f64()
        };
        self.0.extend((0..PASSES).map(pass).max_by(f64::total_cmp));
    }

    /// Returns the best bandwidth, in bytes per second.
    pub(super) fn best(&self) -> f64 {
        self.0.iter().copied().fold(0.0, f64::max)
    }

    /// Prints the best bandwidth, and the share of it that decode at batch 1 uses. The rate of
    /// batch 1 is the first column of `decoded`.
    pub(super) fn report(&self, systems: &[System], decoded: Option<&Table>) {
        let best = self.best();
        let all: Vec<String> = self.0.iter().map(|&speed| digits(speed / 1e9)).collect();
        println!("\nmemory bandwidth: {} GB/s at best (of {}, between the parts)", digits(best / 1e9), all.join(", "));
        let Some(decoded) = decoded else { return };
        println!(
            "  share reached at batch 1 = bytes of the matrices read per token (all layers' and the output head's, as the mode \
             stores them) × tokens/s ÷ bandwidth"
        );
        for system in systems {
            let Some(rate) = decoded.median(&system.name, 0) else { continue };
            let reached = system.weights as f64 * rate;
            println!(
                "  {:18}{:>8} MB × {:>6}/s = {:>5} GB/s: {:.0} %",
                system.name,
                digits(system.weights as f64 / 1e6),
                digits(rate),
                digits(reached / 1e9),
                reached / best * 100.0
            );
        }
    }
}

fn read(words: &[u64]) -> u64 {
    let sum = |part: &[u64]| part.iter().fold(0u64, |sum, &word| sum.wrapping_add(word));
    thread::scope(|scope| {
        let parts = words.chunks(words.len().div_ceil(machine::cores()));
        let running: Vec<_> = parts.map(|part| scope.spawn(move || sum(part))).collect();
        running.into_iter().filter_map(|thread| thread.join().ok()).fold(0, u64::wrapping_add)
    })
}

//! Rounds of one measurement. Each round measures every system.

use std::time::{Duration, Instant};

use super::bench::Bench;
use super::run::{Trial, Workload};
use super::system::System;
use crate::progress::progress;

/// A longer measurement of a system is made only once.
pub(super) const SLOW: Duration = Duration::from_secs(30);

/// The size of a measurement.
#[derive(Debug, Clone, Copy)]
pub(super) struct Shape {
    /// Number of concurrent prompts.
    pub(super) batch: usize,
    /// Tokens per prompt.
    pub(super) prompt: usize,
    /// Tokens to generate per prompt.
    pub(super) tokens: u32,
}

/// Measures every system in every round. A round has new prompts, the same for all systems.
pub(super) async fn in_turn(bench: &mut Bench<'_>, shape: Shape, mut each: impl FnMut(&System, &Trial)) {
    let Shape { batch, prompt, tokens } = shape;
    let mut is_slow = vec![false; bench.systems.len()];
    for round in 1..=bench.args.rounds {
        let work = Workload { prompts: bench.random.prompts(batch, prompt), tokens };
        for (system, is_slow) in bench.systems.iter_mut().zip(&mut is_slow) {
            if *is_slow || !system.is_running() {
                continue;
            }
            progress(&format!("{batch} × {prompt} + {tokens} tokens, round {round}: {}", system.name));
            let start = Instant::now();
            if let Some(run) = system.run(&work).await {
                each(system, &run);
            }
            *is_slow = start.elapsed() > SLOW;
        }
    }
}

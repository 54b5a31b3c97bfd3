//! Rounds of one measurement, each of every system in turn.

use std::time::{Duration, Instant};

use super::run::{Run, Work};
use super::system::System;
use super::{Bench, progress};

/// What takes a system longer than this is measured once.
pub(super) const SLOW: Duration = Duration::from_secs(30);

/// How much is asked for.
#[derive(Debug, Clone, Copy)]
pub(super) struct Shape {
    /// Prompts at once.
    pub(super) batch: usize,
    /// Tokens of each.
    pub(super) prompt: usize,
    /// To generate for each.
    pub(super) tokens: u32,
}

/// New prompts every round, the same for all systems.
pub(super) async fn in_turn(bench: &mut Bench<'_>, shape: Shape, mut each: impl FnMut(&System, &Run)) {
    let Shape { batch, prompt, tokens } = shape;
    let mut is_slow = vec![false; bench.systems.len()];
    for round in 1..=bench.args.rounds {
        let work = Work { prompts: bench.random.prompts(batch, prompt), tokens };
        for (system, is_slow) in bench.systems.iter_mut().zip(&mut is_slow) {
            if *is_slow || !system.is_well() {
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

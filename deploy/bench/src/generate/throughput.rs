//! Tokens per second: generated, and read.

use super::run::{Run, Work};
use super::table::{Better, Table};
use super::{Bench, progress};

/// Prompts that are continued at once.
const BATCHES: [usize; 3] = [1, 8, 32];
const PROMPT: usize = 32;
/// Lengths of prompts that are read.
const PROMPTS: [usize; 2] = [512, 4096];

pub(super) async fn decode(bench: &mut Bench<'_>) -> Table {
    let tokens = bench.args.tokens;
    let title = format!("decode, tokens/s, {tokens} tokens after prompts of {PROMPT}");
    let columns = BATCHES.iter().map(|batch| format!("batch {batch}")).collect();
    let mut table = Table::new(title, Better::Higher, columns);
    for (column, batch) in BATCHES.into_iter().enumerate() {
        measure(bench, &mut table, column, (batch, PROMPT, tokens), Run::decoded).await;
    }
    table.print();
    table
}

pub(super) async fn prefill(bench: &mut Bench<'_>) {
    let columns = PROMPTS.iter().map(|length| format!("{length} tokens")).collect();
    let mut table = Table::new("prefill, tokens/s until the first token is there", Better::Higher, columns);
    for (column, length) in PROMPTS.into_iter().enumerate() {
        let rate = |run: &Run| length as f64 / run.first().median().as_secs_f64();
        measure(bench, &mut table, column, (1, length, 1), rate).await;
    }
    table.print();
}

/// One column: every system in turn, for all rounds. The shape is (batch, length of prompts, tokens to generate).
async fn measure(
    bench: &mut Bench<'_>,
    table: &mut Table,
    column: usize,
    (batch, length, tokens): (usize, usize, u32),
    figure: impl Fn(&Run) -> f64,
) {
    for round in 1..=bench.args.rounds {
        let work = Work { prompts: bench.random.prompts(batch, length), tokens };
        for system in &mut bench.systems {
            progress(&format!("{batch} × {length} + {tokens} tokens, round {round}: {}", system.name));
            if let Some(run) = system.run(&work).await {
                table.add(system, column, figure(&run));
            }
        }
    }
}

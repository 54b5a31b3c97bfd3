//! Tokens per second of decode and prefill.

use super::bench::Bench;
use super::run::Trial;
use super::table::{Better, Table};
use super::turns::{Shape, in_turn};

/// Batch sizes of decode.
const BATCHES: [usize; 3] = [1, 8, 32];
const PROMPT: usize = 32;
/// Prompt lengths of prefill.
const PROMPTS: [usize; 2] = [512, 4096];

pub(super) async fn decode(bench: &mut Bench<'_>) -> Table {
    let tokens = bench.args.tokens;
    let title = format!("decode, tokens/s, {tokens} tokens after prompts of {PROMPT}");
    let columns = BATCHES.iter().map(|batch| format!("batch {batch}")).collect();
    let mut table = Table::new(title, Better::Higher, columns);
    for (column, batch) in BATCHES.into_iter().enumerate() {
        let shape = Shape { batch, prompt: PROMPT, tokens };
        in_turn(bench, shape, |system, run| table.add(system, column, run.decoded())).await;
    }
    table.print();
    table
}

pub(super) async fn prefill(bench: &mut Bench<'_>) {
    let columns = PROMPTS.iter().map(|length| format!("{length} tokens")).collect();
    let mut table = Table::new("prefill, tokens/s until the first token is there", Better::Higher, columns);
    for (column, length) in PROMPTS.into_iter().enumerate() {
        let rate = |run: &Trial| length as f64 / run.first().median().as_secs_f64();
        let shape = Shape { batch: 1, prompt: length, tokens: 1 };
        in_turn(bench, shape, |system, run| table.add(system, column, rate(run))).await;
    }
    table.print();
}

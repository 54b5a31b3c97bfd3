//! Latency: to the first token, and between tokens.

use super::bench::Bench;
use super::run::Trial;
use super::table::{Better, Table};
use super::turns::{Shape, in_turn};

const STREAMS: [usize; 3] = [1, 8, 32];
const PROMPT: usize = 128;
const TOKENS: u32 = 64;

/// The figure of a run.
type Figure = fn(&Trial) -> f64;

const FIGURES: [(&str, Figure); 4] = [
    ("first token, p50", |run| milliseconds(run.first().percentile(0.5))),
    ("first token, p99", |run| milliseconds(run.first().percentile(0.99))),
    ("between tokens, p50", |run| milliseconds(run.gaps().percentile(0.5))),
    ("between tokens, p99", |run| milliseconds(run.gaps().percentile(0.99))),
];

fn milliseconds(time: std::time::Duration) -> f64 {
    time.as_secs_f64() * 1e3
}

pub(super) async fn measure(bench: &mut Bench<'_>) {
    let columns: Vec<String> = STREAMS.iter().map(|streams| format!("{streams} at once")).collect();
    let mut tables = FIGURES.map(|(name, _)| Table::new(format!("{name}, ms"), Better::Lower, columns.clone()));
    for (column, batch) in STREAMS.into_iter().enumerate() {
        let shape = Shape { batch, prompt: PROMPT, tokens: TOKENS };
        in_turn(bench, shape, |system, run| {
            for (table, (_, figure)) in tables.iter_mut().zip(FIGURES) {
                table.add(system, column, figure(run));
            }
        })
        .await;
    }
    println!(
        "\nlatency, prompts of {PROMPT} tokens, {TOKENS} generated: Tandem through gRPC, a stream each; the others as one batch in \
         their own process, without a server"
    );
    tables.iter().for_each(Table::print);
}

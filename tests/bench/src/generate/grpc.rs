//! The cost of streaming over gRPC.

use super::args::Family;
use super::bench::Bench;
use super::offline::Offline;
use super::run::{Trial, Workload};
use super::system;
use crate::progress::progress;
use crate::stats::digits;

const BATCHES: [usize; 3] = [1, 8, 32];
const PROMPT: usize = 32;

pub(super) async fn measure(bench: &mut Bench<'_>) {
    let args = bench.args;
    let (Some(&mode), Some(at)) =
        (args.modes.first(), bench.systems.iter().position(|system| system.family == Family::Tandem))
    else {
        return;
    };
    println!(
        "\nthe cost of gRPC, tandem {}: tokens/s of whole requests, {PROMPT} + {} tokens: median (least–most)",
        system::name(&mode),
        args.tokens
    );
    for batch in BATCHES {
        let (mut served, mut offline) = (Vec::new(), Vec::new());
        for round in 1..=args.rounds {
            let work = Workload { prompts: bench.random.prompts(batch, PROMPT), tokens: args.tokens };
            progress(&format!("{batch} requests, round {round}: gRPC"));
            served.extend(bench.systems[at].run(&work).await.as_ref().map(Trial::throughput));
            progress(&format!("{batch} requests, round {round}: --jsonl"));
            match Offline::new(args, mode).throughput(&work).await {
                Ok(rate) => offline.push(rate),
                Err(error) => progress(&format!("--jsonl: {error:#}")),
            }
        }
        report(batch, served, offline);
    }
}

fn report(batch: usize, mut served: Vec<f64>, mut offline: Vec<f64>) {
    served.sort_by(f64::total_cmp);
    offline.sort_by(f64::total_cmp);
    let median = |rates: &[f64]| rates.get(rates.len() / 2).copied().unwrap_or(f64::NAN);
    let shown = |rates: &[f64]| {
        let [least, most] = [rates.first(), rates.last()].map(|rate| rate.copied().unwrap_or(f64::NAN));
        format!("{} ({}–{})", digits(median(rates)), digits(least), digits(most))
    };
    println!(
        "  batch {batch:<3} gRPC {:<24} --jsonl {:<24} gRPC reaches {:.1} %",
        shown(&served),
        shown(&offline),
        median(&served) / median(&offline) * 100.0
    );
}

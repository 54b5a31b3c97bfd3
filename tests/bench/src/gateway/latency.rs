//! Latency: to the first token, between tokens, and to the last token; and the CPU time of a token.

use std::time::Duration;

use anyhow::Result;

use super::bench::Bench;
use super::call::Route;
use super::load::{Load, Sample};
use super::services::Services;
use crate::figures::{self, Figure};
use crate::progress::progress;
use crate::stats::digits;

/// A name, and the figure of a sample in microseconds.
type Measure = (&'static str, fn(&mut Sample) -> f64);

const FIRST: [Measure; 2] = [
    ("first token, p50", |sample| microseconds(sample.first.percentile(0.5))),
    ("first token, p99", |sample| microseconds(sample.first.percentile(0.99))),
];
const BETWEEN: [Measure; 2] = [
    ("between tokens, p50", |sample| microseconds(sample.gaps.percentile(0.5))),
    ("between tokens, p99", |sample| microseconds(sample.gaps.percentile(0.99))),
];
const LAST: [Measure; 2] = [
    ("last token, p50", |sample| microseconds(sample.last.percentile(0.5))),
    ("last token, p99", |sample| microseconds(sample.last.percentile(0.99))),
];
const COST: [Measure; 1] =
    [("on a CPU per token, all", |sample| microseconds(sample.cpu.sum()) / sample.tokens.max(1) as f64)];

fn microseconds(time: Duration) -> f64 {
    time.as_secs_f64() * 1e6
}

pub(super) async fn measure(bench: &Bench<'_>) -> Result<()> {
    let Bench { args, services, tasks } = bench;
    println!("\nlatency, µs: median of the rounds (least–most)");
    // A step without duration makes all tokens arrive at once.
    let one = Load::Clients(1);
    report(bench, services, one, "one client, a step takes no time", &[FIRST, LAST].concat()).await?;
    let services = Services::start(args, args.step_ms).await?;
    tasks.check(&services).await?;
    let step = format!("a step takes {} ms", args.step_ms);
    let measures = [&FIRST[..], &BETWEEN, &COST].concat();
    report(bench, &services, one, &format!("one client, {step}"), &measures).await?;
    let title = format!("{} requests/s, {step}", args.rate);
    report(bench, &services, Load::Rate(args.rate), &title, &measures).await
}

/// Measures a load over both routes, and prints the difference.
async fn report(bench: &Bench<'_>, services: &Services, load: Load, title: &str, measures: &[Measure]) -> Result<()> {
    let mut rows: Vec<Row> = measures.iter().copied().map(Row::new).collect();
    for round in 0..bench.args.rounds {
        for route in Route::in_turn(round) {
            progress(&format!("{title}, round {}: {route:?}", round + 1));
            let mut sample = load.run(services, &bench.tasks, route, bench.args.how_long()).await?;
            rows.iter_mut().for_each(|row| row.add(route, &mut sample));
        }
    }
    let cells: Vec<_> = rows.iter().map(Row::show).collect();
    figures::print(title, &["", "direct", "RunTask", "RunTask adds"], &cells);
    Ok(())
}

/// One figure of both routes.
#[derive(Debug)]
struct Row {
    measure: Measure,
    direct: Figure,
    run_task: Figure,
}

impl Row {
    fn new(measure: Measure) -> Self {
        Self { measure, direct: Figure::default(), run_task: Figure::default() }
    }

    fn add(&mut self, route: Route, sample: &mut Sample) {
        let (_, value) = self.measure;
        match route {
            Route::Direct => self.direct.add(value(sample)),
            Route::RunTask => self.run_task.add(value(sample)),
        }
    }

    fn show(&self) -> Vec<String> {
        let adds = digits(self.run_task.median() - self.direct.median());
        vec![self.measure.0.to_owned(), self.direct.show(), self.run_task.show(), adds]
    }
}

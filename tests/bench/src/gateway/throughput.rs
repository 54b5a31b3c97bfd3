//! Maximum rates, and the CPU time of a request in each process.

use std::time::Duration;

use anyhow::Result;

use super::bench::Bench;
use super::call::Route;
use super::load::{Load, Sample};
use crate::figures::{self, Figure};
use crate::progress::progress;

/// Measures both routes with a number of clients.
#[derive(Debug, Default)]
struct Row {
    clients: usize,
    direct: Reached,
    run_task: Reached,
}

/// The figures of one route.
#[derive(Debug, Default)]
struct Reached {
    requests: Figure,
    tokens: Figure,
    /// CPU time per request of each process, in microseconds.
    render: Figure,
    generate: Figure,
    clients: Figure,
}

impl Reached {
    fn add(&mut self, sample: &Sample) {
        let per_request = |time: Duration| time.as_secs_f64() * 1e6 / sample.requests.max(1) as f64;
        self.requests.add(sample.rate());
        self.tokens.add(sample.token_rate());
        self.render.add(per_request(sample.cpu.render));
        self.generate.add(per_request(sample.cpu.generate));
        self.clients.add(per_request(sample.cpu.clients));
    }
}

impl Row {
    fn rates(&self) -> Vec<String> {
        let Self { clients, direct, run_task } = self;
        let share = run_task.requests.median() / direct.requests.median() * 100.0;
        let figures = [&direct.requests, &direct.tokens, &run_task.requests, &run_task.tokens];
        let mut cells = vec![clients.to_string()];
        cells.extend(figures.map(Figure::show));
        cells.push(format!("{share:.1} %"));
        cells
    }

    fn costs(&self) -> Vec<String> {
        let Self { clients, direct, run_task } = self;
        let figures = [&direct.generate, &direct.clients, &run_task.render, &run_task.generate, &run_task.clients];
        [clients.to_string()].into_iter().chain(figures.map(Figure::show)).collect()
    }
}

pub(super) async fn measure(bench: &Bench<'_>) -> Result<()> {
    let mut rows = Vec::new();
    for &clients in &bench.args.clients {
        rows.push(row(bench, clients).await?);
    }
    println!("\nthroughput, a step takes no time: median of the rounds (least–most)");
    let head = ["clients", "direct requests/s", "tokens/s", "RunTask requests/s", "tokens/s", "RunTask reaches"];
    figures::print("the highest rates", &head, &rows.iter().map(Row::rates).collect::<Vec<_>>());
    let head = ["clients", "direct: gen-svc", "clients", "RunTask: render-svc", "gen-svc", "clients"];
    figures::print("time on a CPU per request, µs", &head, &rows.iter().map(Row::costs).collect::<Vec<_>>());
    Ok(())
}

async fn row(bench: &Bench<'_>, clients: usize) -> Result<Row> {
    let Bench { args, services, tasks } = bench;
    let mut row = Row { clients, ..Row::default() };
    for round in 0..args.rounds {
        for route in Route::in_turn(round) {
            progress(&format!("{clients} clients, round {}: {route:?}", round + 1));
            let sample = Load::Clients(clients).run(services, tasks, route, args.how_long()).await?;
            match route {
                Route::Direct => row.direct.add(&sample),
                Route::RunTask => row.run_task.add(&sample),
            }
        }
    }
    Ok(row)
}

//! `cargo xtask simulate`: a week of gen-svc under the chart's autoscaling, from measured times.

mod arrivals;
mod autoscaler;
mod figures;
mod plot;
mod replicas;
mod week;

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::Result;

use crate::files::write;
use crate::layout::Layout;
use figures::Figures;
use week::{Plan, Week};

/// Simulate a week of gen-svc under the chart's autoscaling, and plot it.
///
/// The times of tasks come from a file of measured figures. The rest is assumed, and printed: arrivals
/// by hour and day, one size of tasks, equal replicas, the rule and the delays of the chart's
/// autoscaling. Equal arguments give equal results.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Tasks per minute at the peak of a working day.
    #[arg(long, value_name = "NUMBER", default_value_t = 900.0)]
    peak: f64,
    /// Fewest replicas.
    #[arg(long, value_name = "NUMBER", default_value_t = 2)]
    min: usize,
    /// Most replicas.
    #[arg(long, value_name = "NUMBER", default_value_t = 8)]
    max: usize,
    /// Requests in the queue per replica that the autoscaling aims at.
    #[arg(long, value_name = "NUMBER", default_value_t = 4.0)]
    target_queued: f64,
    /// Share of the KV cache in use that the autoscaling aims at.
    #[arg(long, value_name = "SHARE", default_value_t = 0.8)]
    target_kv_use: f64,
    /// Seconds until a new replica is ready.
    #[arg(long, value_name = "SECONDS", default_value_t = 30)]
    start_seconds: u64,
    /// Seed of the arrivals.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// File of measured figures [default: deploy/simulation/figures.txt]
    #[arg(long, value_name = "FILE")]
    figures: Option<PathBuf>,
    /// The plot [default: target/simulation.svg]
    #[arg(long, value_name = "FILE")]
    out: Option<PathBuf>,
}

pub(crate) fn run(layout: &Layout, args: &Args) -> Result<ExitCode> {
    let file = args.figures.clone().unwrap_or_else(|| layout.root().join("deploy/simulation/figures.txt"));
    let out = args.out.clone().unwrap_or_else(|| layout.root().join("target/simulation.svg"));
    let figures = Figures::read(&file)?;
    let plan = Plan {
        peak: args.peak,
        min: args.min.max(1),
        max: args.max.max(args.min).max(1),
        target_queued: args.target_queued,
        target_kv_use: args.target_kv_use,
        start_seconds: args.start_seconds,
        seed: args.seed,
    };
    println!("Measured ({}):\n{}\n", file.display(), figures.describe());
    println!("Assumed:\n{}\n", plan.describe());
    let week = Week::simulate(&plan, &figures);
    println!("Simulated:\n{}\n", week.describe(&plan));
    write(&out, &plot::svg(&week))?;
    println!("{}", out.display());
    Ok(ExitCode::SUCCESS)
}

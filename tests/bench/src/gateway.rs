//! The gateway: what RunTask adds over calling gen-svc with the same token ids, in front of a mock of gen-svc that computes nothing.

mod call;
mod figures;
mod latency;
mod load;
mod model;
mod services;
mod tasks;
mod throughput;

use std::path::PathBuf;
use std::time::Duration;

use anyhow::Result;
use clap::ValueEnum;

use crate::machine;
use services::Services;
use tasks::Tasks;

/// The gateway: what RunTask adds to latency, and the highest rates with it and without it.
#[derive(Debug, clap::Args)]
#[command(args_override_self = true)]
pub(crate) struct Gateway {
    /// The render-svc to measure.
    #[arg(long, value_name = "PATH")]
    render_svc: PathBuf,
    /// The gen-svc-mock to put behind it.
    #[arg(long, value_name = "PATH")]
    gen_svc_mock: PathBuf,
    /// What to measure.
    #[arg(long, value_delimiter = ',', default_values = ["latency", "throughput"])]
    only: Vec<Part>,
    /// Seconds per measurement of each route in a round.
    #[arg(long, default_value_t = 3, value_name = "SECONDS", value_parser = clap::value_parser!(u64).range(1..))]
    seconds: u64,
    /// Rounds of every measurement, each of both routes in turn.
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..))]
    rounds: u32,
    /// Clients that ask without a pause where throughput is measured.
    #[arg(long, value_delimiter = ',', default_values = ["1", "8", "32", "64"])]
    clients: Vec<usize>,
    /// Tokens of every answer.
    #[arg(long, default_value_t = 16, value_parser = clap::value_parser!(u32).range(2..=2048))]
    tokens: u32,
    /// Requests per second where latency is measured under load.
    #[arg(long, default_value_t = 100, value_name = "REQUESTS", value_parser = clap::value_parser!(u32).range(1..=10_000))]
    rate: u32,
    /// Milliseconds that a step of the mock takes where the time between tokens is measured.
    #[arg(long, default_value_t = 1, value_name = "MILLISECONDS", value_parser = clap::value_parser!(u64).range(1..))]
    step_ms: u64,
}

/// A part of the measurement.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Part {
    /// Time to the first token, from each to the next and to the last, for one client and at a moderate rate.
    Latency,
    /// The highest rates of both routes, and the time on a CPU that a request takes in each process.
    Throughput,
}

impl Gateway {
    fn how_long(&self) -> Duration {
        Duration::from_secs(self.seconds)
    }
}

/// What the parts work with.
struct Bench<'a> {
    args: &'a Gateway,
    /// A step of their mock takes no time.
    services: Services,
    tasks: Tasks,
}

pub(crate) async fn measure(args: &Gateway) -> Result<()> {
    println!("{}; load average {}", machine::name(), machine::load_average());
    println!("{} rounds of {} s for each route, clients and services on the same cores", args.rounds, args.seconds);
    let services = Services::start(args, 0).await?;
    let tasks = Tasks::prepare(&services, args.tokens).await?;
    println!(
        "prompts of about {} tokens, answers of {}, each compared with the other route's",
        tasks.prompt_tokens(),
        args.tokens
    );
    let bench = Bench { args, services, tasks };
    for part in &args.only {
        match part {
            Part::Latency => latency::measure(&bench).await?,
            Part::Throughput => throughput::measure(&bench).await?,
        }
    }
    println!("\nload average at the end {}", machine::load_average());
    Ok(())
}

/// What is measured now, for whoever waits.
fn progress(what: &str) {
    eprintln!("  {what}");
}

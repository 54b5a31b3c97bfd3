//! The arguments of `gateway`.

use std::path::PathBuf;
use std::time::Duration;

use clap::ValueEnum;

/// The gateway: the latency that RunTask adds, and the maximum rates with and without it.
#[derive(Debug, clap::Args)]
#[command(args_override_self = true)]
pub(crate) struct Gateway {
    /// The render-svc to measure.
    #[arg(long, value_name = "PATH")]
    pub(super) render_svc: PathBuf,
    /// The gen-svc-mock behind it.
    #[arg(long, value_name = "PATH")]
    pub(super) gen_svc_mock: PathBuf,
    /// The parts to measure.
    #[arg(long, value_delimiter = ',', default_values = ["latency", "throughput"])]
    pub(super) only: Vec<Part>,
    /// Seconds per measurement of each route in a round.
    #[arg(long, default_value_t = 3, value_name = "SECONDS", value_parser = clap::value_parser!(u64).range(1..))]
    pub(super) seconds: u64,
    /// Rounds of every measurement. Each round measures both routes.
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..))]
    pub(super) rounds: u32,
    /// Numbers of concurrent clients for throughput, which send requests without a pause.
    #[arg(long, value_delimiter = ',', default_values = ["1", "8", "32", "64"])]
    pub(super) clients: Vec<usize>,
    /// Tokens per answer.
    #[arg(long, default_value_t = 16, value_parser = clap::value_parser!(u32).range(2..=2048))]
    pub(super) tokens: u32,
    /// Requests per second for latency under load.
    #[arg(long, default_value_t = 100, value_name = "REQUESTS", value_parser = clap::value_parser!(u32).range(1..=10_000))]
    pub(super) rate: u32,
    /// Duration of the mock's step for the time between tokens, in milliseconds.
    #[arg(long, default_value_t = 1, value_name = "MILLISECONDS", value_parser = clap::value_parser!(u64).range(1..))]
    pub(super) step_ms: u64,
}

/// A part of the measurement.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(super) enum Part {
    /// Time to the first token, between tokens and to the last token, for one client and at a
    /// moderate rate.
    Latency,
    /// Maximum rates of both routes, and CPU time per request in each process.
    Throughput,
}

impl Gateway {
    pub(super) fn how_long(&self) -> Duration {
        Duration::from_secs(self.seconds)
    }
}

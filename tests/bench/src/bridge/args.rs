//! The arguments of `bridge`.

use std::path::PathBuf;

use clap::ValueEnum;

/// The bridge: tokens per second, the first token, cancellation and memory, compared with calls of the engine.
#[derive(Debug, clap::Args)]
#[command(args_override_self = true)]
pub(crate) struct Bridge {
    /// The gen-bridge to measure.
    #[arg(long, value_name = "PATH")]
    pub(super) gen_bridge: PathBuf,
    /// A Python with xllamacpp, which has llama.cpp's server.
    #[arg(long, value_name = "PATH")]
    pub(super) python: PathBuf,
    /// The script that runs the server.
    #[arg(long, value_name = "PATH")]
    pub(super) llama_server: PathBuf,
    /// The model: a GGUF file.
    #[arg(long, value_name = "FILE")]
    pub(super) model: PathBuf,
    /// The parts to measure.
    #[arg(long, value_delimiter = ',', default_values = ["throughput", "first-token", "cancel", "memory"])]
    pub(super) parts: Vec<Part>,
    /// Rounds of throughput. Each round measures both routes.
    #[arg(long, default_value_t = 10)]
    pub(super) rounds: usize,
    /// Tokens of each answer in a round of throughput.
    #[arg(long, default_value_t = 64)]
    pub(super) tokens: u32,
    /// Pairs of requests for the time to the first token, and for cancellation.
    #[arg(long, default_value_t = 40)]
    pub(super) pairs: usize,
    /// Open streams for memory.
    #[arg(long, default_value_t = 1000)]
    pub(super) streams: usize,
}

/// A part of the measurement.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(super) enum Part {
    /// Tokens per second of as many streams as the engine has slots.
    Throughput,
    /// Time to the first token of a request alone.
    FirstToken,
    /// Time from a cancelled request to the free slot.
    Cancel,
    /// Resident memory of the bridge with many open streams.
    Memory,
}

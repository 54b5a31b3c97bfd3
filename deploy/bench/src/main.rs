//! Measures Tandem against what people would use instead, each pair in one run on the same cases. Every figure printed was measured
//! in that run.

mod cases;
mod cold;
mod grpc;
mod long;
mod memory;
mod minijinja;
mod process;
mod render;
mod stats;
mod transformers;

use std::path::PathBuf;
use std::time::Duration;

use clap::{Parser, Subcommand};
use render_svc::args;

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// Measures Tandem against what people would use instead.
#[derive(Debug, Parser)]
#[command(name = "tandem-bench")]
struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Rendering: per render, cold start, over gRPC, long prompts, memory.
    Render(Render),
    /// The service that is measured, in a process of its own.
    #[command(hide = true)]
    Serve(args::Serve),
}

/// What to measure with.
#[derive(Debug, clap::Args)]
struct Render {
    /// A Python that has transformers; without it, only Tandem and minijinja are measured.
    #[arg(long, value_name = "PATH")]
    python: Option<PathBuf>,
    /// A folder with templates/ and conversations/; without it, the templates of the tokenizers are used with conversations of our own.
    #[arg(long, value_name = "FOLDER")]
    corpus: Option<PathBuf>,
    /// A folder of Hugging Face tokenizers.
    #[arg(long, value_name = "FOLDER")]
    tokenizers: PathBuf,
    /// Seconds per measurement over gRPC.
    #[arg(long, default_value_t = 5, value_name = "SECONDS")]
    seconds: u64,
    /// Rounds over all cases, each of every system in turn.
    #[arg(long, default_value_t = 3)]
    rounds: usize,
    /// Renders for the memory measurement.
    #[arg(long, default_value_t = 1_000_000)]
    renders: u64,
    /// Only these parts, of: render, cold, grpc, long, memory.
    #[arg(long, value_delimiter = ',')]
    only: Vec<String>,
}

impl Render {
    fn wants(&self, part: &str) -> bool {
        self.only.is_empty() || self.only.iter().any(|only| only == part)
    }
}

fn main() -> anyhow::Result<()> {
    let runtime = tokio::runtime::Runtime::new()?;
    match Args::parse().command {
        Command::Render(args) => runtime.block_on(measure(&args)),
        Command::Serve(args) => runtime.block_on(render_svc::serve::run(args)),
    }
}

async fn measure(args: &Render) -> anyhow::Result<()> {
    let set = cases::Set::load(args.corpus.as_deref(), &args.tokenizers)?;
    println!("{} models, {} requests, {} cores", set.models.len(), set.cases.len(), cores());
    let mut peer = match &args.python {
        Some(python) => Some(transformers::Transformers::start(python, &set).await?),
        None => None,
    };
    if args.wants("render") {
        render::measure(&set, peer.as_mut(), args.rounds).await?;
    }
    if args.wants("cold") {
        cold::measure(&args.tokenizers, peer.as_mut()).await?;
    }
    if args.wants("grpc") {
        grpc::measure(&set, Duration::from_secs(args.seconds)).await?;
    }
    if args.wants("long") {
        long::measure(&args.tokenizers, peer.as_mut(), Duration::from_secs(args.seconds)).await?;
    }
    if args.wants("memory") {
        memory::measure(&set, args.renders)?;
    }
    Ok(())
}

fn cores() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from)
}

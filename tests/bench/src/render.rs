//! Rendering: Tandem, transformers and minijinja on the same requests.

mod cases;
mod cold;
mod each;
mod grpc;
mod long;
mod memory;
mod minijinja;
mod process;
mod transformers;

use std::path::PathBuf;
use std::time::Duration;

use crate::machine;

/// Rendering: per render, cold start, over gRPC, long prompts, memory.
#[derive(Debug, clap::Args)]
pub(crate) struct Render {
    /// A Python with transformers. Without one, only Tandem and minijinja are measured.
    #[arg(long, value_name = "PATH")]
    python: Option<PathBuf>,
    /// A folder with templates/ and conversations/. Without one, the tokenizers' templates and
    /// built-in conversations are used.
    #[arg(long, value_name = "FOLDER")]
    corpus: Option<PathBuf>,
    /// A folder of Hugging Face tokenizers.
    #[arg(long, value_name = "FOLDER")]
    tokenizers: PathBuf,
    /// Seconds per measurement over gRPC.
    #[arg(long, default_value_t = 5, value_name = "SECONDS")]
    seconds: u64,
    /// Rounds over all cases. Each round measures every system.
    #[arg(long, default_value_t = 3)]
    rounds: usize,
    /// Renders for the memory measurement.
    #[arg(long, default_value_t = 1_000_000)]
    renders: u64,
    /// Only these parts: render, cold, grpc, long, memory.
    #[arg(long, value_delimiter = ',')]
    only: Vec<String>,
}

impl Render {
    fn wants(&self, part: &str) -> bool {
        self.only.is_empty() || self.only.iter().any(|only| only == part)
    }
}

pub(crate) async fn measure(args: &Render) -> anyhow::Result<()> {
    let set = cases::Set::load(args.corpus.as_deref(), &args.tokenizers)?;
    println!("{} models, {} requests, {} cores", set.models.len(), set.cases.len(), machine::cores());
    let mut peer = match &args.python {
        Some(python) => Some(transformers::Transformers::start(python, &set).await?),
        None => None,
    };
    if args.wants("render") {
        each::measure(&set, peer.as_mut(), args.rounds).await?;
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

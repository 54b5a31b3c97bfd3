//! `cargo xtask bench`: Tandem measured against what people would use instead.

use std::ffi::OsString;
use std::path::PathBuf;
use std::process::{Command, ExitCode};

use anyhow::{Context, Result};
use clap::Subcommand;

use crate::cargo::{self, Profile};
use crate::layout::Layout;
use crate::setup::{self, model, tokenizers, venv};

/// Measure Tandem against what people would use instead, all in one run on this machine.
///
/// Sets up what is missing and builds with optimization; the first time takes some minutes.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    #[command(subcommand)]
    what: What,
}

#[derive(Debug, Subcommand)]
enum What {
    /// Rendering against transformers and bare minijinja: per render, cold start, over gRPC, long prompts, memory.
    ///
    /// Uses the templates and conversations in ../shared/corpus where there are any, else the chat templates of well-known
    /// tokenizers with conversations of its own. Takes about five minutes after the build.
    #[command(after_help = "\
Examples:
  cargo xtask bench render                        everything
  cargo xtask bench render --only render,cold     two of: render, cold, grpc, long, memory
  cargo xtask bench render --seconds 20           longer measurements over gRPC")]
    Render(PassedOn),
    /// Generation against llama.cpp and transformers: decode, prefill, latency, the cost of gRPC, prefixes, quality, memory.
    ///
    /// All systems get the same GGUF file, prompts and threads (all cores), and work in turn, one at a time, for some rounds. The
    /// tables show the median and the spread, and Tandem's median against the better row of each of the others.
    ///
    /// The first time, builds gen-svc in release (ten minutes on two cores) and installs llama-cpp-python, transformers and torch
    /// into `.tandem/reference`: llama.cpp is compiled (another ten), and torch's wheel for Linux brings CUDA (3 GB to fetch, 7 GB of
    /// disk). With --python nothing is installed. Then everything takes about an hour on two cores; the machine should have nothing
    /// else to do.
    #[command(after_help = "\
Examples:
  cargo xtask bench generate                                    everything
  cargo xtask bench generate --only decode,prefill              two of: decode, prefill, latency, grpc, prefix, quality, memory
  cargo xtask bench generate --modes keep --rounds 1            one of: keep, f32, bf16, int8, int4; a quick look
  cargo xtask bench generate --systems tandem,llama.cpp         without transformers
  cargo xtask bench generate --model MODEL.gguf --tokens 64     another model, fewer tokens
  cargo xtask bench generate --python ~/venv/bin/python         a Python that has what is to be compared with")]
    Generate(Generate),
    /// RunTask against calling gen-svc with the same token ids: what it adds to latency, and the highest rates of both.
    ///
    /// Behind both routes is gen-svc with a mock for a model, which computes nothing: what is measured is all that is not the model.
    /// render-svc, the mock and the clients are processes of their own on this machine and share its cores. Both routes work in
    /// turn for some rounds, with the same prompts, sampling and seeds, and every answer is compared with the other route's. The
    /// tables show the median of the rounds and the spread.
    ///
    /// The first time, builds render-svc and the mock in release (ten minutes on two cores). Then everything takes about five minutes;
    /// the machine should have nothing else to do.
    #[command(after_help = "\
Examples:
  cargo xtask bench gateway                              everything
  cargo xtask bench gateway --only latency               one of: latency, throughput
  cargo xtask bench gateway --seconds 1 --rounds 1       a quick look
  cargo xtask bench gateway --clients 16 --tokens 64     one number of clients, longer answers
  cargo xtask bench gateway --rate 20 --step-ms 20       a lower rate, and a model of 50 tokens per second")]
    Gateway(PassedOn),
}

/// What only the benchmark reads.
#[derive(Debug, clap::Args)]
struct PassedOn {
    /// Passed on to the benchmark; `-- --help` lists what it takes.
    #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
    arguments: Vec<OsString>,
}

#[derive(Debug, clap::Args)]
struct Generate {
    /// The model: a GGUF file. Default: the one that chat uses.
    #[arg(long, value_name = "FILE")]
    model: Option<PathBuf>,
    /// A Python of yours, with llama_cpp, or torch, transformers and gguf. What it lacks is not measured.
    #[arg(long, value_name = "PATH")]
    python: Option<PathBuf>,
    /// Passed on to the benchmark; `-- --help` lists what it takes.
    #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
    arguments: Vec<OsString>,
}

pub(crate) fn run(layout: &Layout, args: &Args) -> Result<ExitCode> {
    let mut command = match &args.what {
        What::Render(args) => render(layout, args)?,
        What::Generate(args) => generate(layout, args)?,
        What::Gateway(args) => gateway(layout, args)?,
    };
    let status = command.status().context("cannot run cargo")?;
    Ok(if status.success() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn render(layout: &Layout, args: &PassedOn) -> Result<Command> {
    tokenizers::ensure(layout)?;
    let python = venv::transformers(layout)?.python();
    let mut command = benchmark(layout, "render");
    command.arg("--tokenizers").arg(layout.tokenizers()).arg("--python").arg(python);
    let corpus = layout.root().join("../shared/corpus");
    if corpus.is_dir() {
        command.arg("--corpus").arg(corpus);
    }
    command.args(&args.arguments);
    Ok(command)
}

fn generate(layout: &Layout, args: &Generate) -> Result<Command> {
    setup::ensure(layout)?;
    let python = match &args.python {
        Some(python) => python.clone(),
        None => venv::reference(layout)?.python(),
    };
    let service = cargo::build(layout, Profile::Release, &["gen-svc"])?.executable("gen-svc")?;
    let mut command = benchmark(layout, "generate");
    command.arg("--gen-svc").arg(service).arg("--python").arg(python);
    command.arg("--model").arg(args.model.clone().unwrap_or_else(|| model::path(layout)));
    command.args(&args.arguments);
    Ok(command)
}

fn gateway(layout: &Layout, args: &PassedOn) -> Result<Command> {
    setup::ensure(layout)?;
    let built = cargo::build(layout, Profile::Release, &["render-svc", "gen-svc-mock"])?;
    let mut command = benchmark(layout, "gateway");
    command.arg("--render-svc").arg(built.executable("render-svc")?);
    command.arg("--gen-svc-mock").arg(built.executable("gen-svc-mock")?);
    command.args(&args.arguments);
    Ok(command)
}

/// The benchmark is a workspace of its own, with a target folder of its own.
fn benchmark(layout: &Layout, what: &str) -> Command {
    let mut command = cargo::command(layout);
    command.args(["run", "--release", "--quiet", "--locked", "--manifest-path"]);
    command.arg(layout.root().join("tests/bench/Cargo.toml"));
    command.arg("--target-dir").arg(layout.root().join("target/bench"));
    command.args(["--", what]);
    command
}

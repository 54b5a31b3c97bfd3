//! `cargo xtask bench`: Tandem compared with its alternatives.

use std::ffi::OsString;
use std::path::PathBuf;
use std::process::{Command, ExitCode};

use anyhow::{Context, Result};
use clap::Subcommand;

use crate::cargo::{self, Profile, Programs};
use crate::layout::Layout;
use crate::setup::vllm::Vllm;
use crate::setup::{self, Requirement, model, tokenizers, venv};

/// Compare Tandem with its alternatives, in one run on this machine.
///
/// Sets up the missing parts and builds with optimization; the first run takes some minutes longer.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    #[command(subcommand)]
    what: What,
}

#[derive(Debug, Subcommand)]
enum What {
    /// Rendering, compared with transformers and minijinja: per render, cold start, over gRPC, long
    /// prompts, memory.
    ///
    /// Uses the templates and conversations in ../shared/corpus if that exists, else the chat
    /// templates of well-known tokenizers with built-in conversations. Takes about five minutes
    /// after the build.
    #[command(after_help = "\
Examples:
  cargo xtask bench render                        everything
  cargo xtask bench render --only render,cold     two of: render, cold, grpc, long, memory
  cargo xtask bench render --seconds 20           longer measurements over gRPC")]
    Render(Forwarded),
    /// Generation, compared with llama.cpp, transformers, vLLM, OpenVINO and ik_llama.cpp: decode,
    /// prefill, latency, gRPC, prefixes, quality, memory.
    ///
    /// All systems use the same model, prompts and threads (all cores). In each round one system
    /// after the other is measured. The tables show the median, the spread, and the ratio of
    /// Tandem's median to the best other system with weights of the same type.
    ///
    /// The first run builds gen-svc in release (ten minutes on two cores) and installs
    /// llama-cpp-python, transformers and torch into `.tandem/reference`. llama.cpp is compiled
    /// (ten minutes more), and torch's wheel for Linux includes CUDA (3 GB to fetch, 7 GB of disk).
    /// The measurement takes about an hour on two idle cores.
    ///
    /// vLLM (8 GB of packages), OpenVINO (0.3 GB) and ik_llama.cpp (compiled, twenty minutes) are
    /// measured and installed only if --systems names them, each into its own folder of `.tandem/`.
    /// The folder of vLLM is that of `cargo xtask test --engines`. With --python nothing is installed.
    ///
    /// `--only bridge` compares gen-bridge with direct calls of llama.cpp's own HTTP server behind it: the same
    /// ids, sampling and number of tokens, both routes in each round. It needs neither of these installations, and
    /// takes about three minutes after the build.
    #[command(after_help = "\
Examples:
  cargo xtask bench generate                                    everything
  cargo xtask bench generate --only decode,prefill              two of: decode, prefill, latency, grpc, prefix, quality, memory
  cargo xtask bench generate --only roofline                    where the time of a step goes, and the machine's limits
  cargo xtask bench generate --only vision                      images, with models of random weights
  cargo xtask bench generate --only operations                  operations of libtorch in a decode step
  cargo xtask bench generate --only batch                       libtorch at batch 32, compared with transformers
  cargo xtask bench generate --only bridge                      gen-bridge, compared with calls of the engine behind it
  cargo xtask bench generate --only bridge --parts throughput   one of: throughput, first-token, cancel, memory
  cargo xtask bench generate --modes keep --rounds 1            one of: keep, f32, bf16, int8, int4; a quick look
  cargo xtask bench generate --systems tandem,llama.cpp         two of: tandem, llama.cpp, transformers, vllm,
                                                                openvino, ik-llama.cpp
  cargo xtask bench generate --model MODEL.gguf --tokens 64     another model, fewer tokens
  cargo xtask bench generate --python ~/venv/bin/python         a Python with the packages to compare with")]
    Generate(Generate),
    /// RunTask, compared with gen-svc called with the same token ids: added latency, and the
    /// maximum rates of both.
    ///
    /// Both routes end at a gen-svc whose model is a mock that computes nothing, so that only the
    /// rest is measured. render-svc, the mock and the clients are separate processes and share this
    /// machine's cores. In each round both routes are measured, with the same prompts, sampling and
    /// seeds, and their answers are compared. The tables show the median and the spread.
    ///
    /// The first run builds render-svc and the mock in release (ten minutes on two cores). The
    /// measurement takes about five minutes on an idle machine.
    #[command(after_help = "\
Examples:
  cargo xtask bench gateway                              everything
  cargo xtask bench gateway --only latency               one of: latency, throughput
  cargo xtask bench gateway --seconds 1 --rounds 1       a quick look
  cargo xtask bench gateway --clients 16 --tokens 64     one number of clients, longer answers
  cargo xtask bench gateway --rate 20 --step-ms 20       a lower rate, and a model of 50 tokens per second")]
    Gateway(Forwarded),
    /// Sizing: tokens per second and memory of gen-svc by model size, and how many of its cores one
    /// core of render-svc serves.
    ///
    /// Tasks run through render-svc. The models are that of chat, and three with random weights, of 0.4
    /// to 3 billion parameters; the largest needs 6 GB of disk and 10 GB of memory. The first run
    /// builds both services in release (ten minutes on two cores). The measurement takes about ten
    /// minutes on two idle cores.
    #[command(after_help = "\
Examples:
  cargo xtask bench sizing                                    everything
  cargo xtask bench sizing --shapes 0.4b --tasks 8            a quick look
  cargo xtask bench sizing --models MODEL.gguf --quantize keep --shapes=
                                                              your model only, in the format of its file")]
    Sizing(Forwarded),
}

/// Arguments for the benchmark.
#[derive(Debug, clap::Args)]
struct Forwarded {
    /// Arguments for the benchmark; `-- --help` lists them.
    #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
    arguments: Vec<OsString>,
}

#[derive(Debug, clap::Args)]
struct Generate {
    /// The model: a GGUF file. [default: the model of chat]
    #[arg(long, value_name = "FILE")]
    model: Option<PathBuf>,
    /// A Python with llama_cpp, with torch, transformers and gguf, or with another system's package.
    /// Missing packages are not measured.
    #[arg(long, value_name = "PATH")]
    python: Option<PathBuf>,
    /// The systems to measure. [default: tandem, llama.cpp, transformers]
    #[arg(long, value_delimiter = ',', value_name = "SYSTEMS")]
    systems: Vec<String>,
    /// The parts to measure. [default: decode, prefill, latency, grpc, prefix, quality, memory]
    #[arg(long, value_name = "PARTS")]
    only: Option<String>,
    /// Arguments for the benchmark; `-- --help` lists them.
    #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
    arguments: Vec<OsString>,
}

pub(crate) fn run(layout: &Layout, args: &Args) -> Result<ExitCode> {
    let mut command = match &args.what {
        What::Render(args) => render(layout, args)?,
        What::Generate(args) if args.only.as_deref() == Some("bridge") => bridge(layout, args)?,
        What::Generate(args) => generate(layout, args)?,
        What::Gateway(args) => gateway(layout, args)?,
        What::Sizing(args) => sizing(layout, args)?,
    };
    let status = command.status().context("cannot run cargo")?;
    Ok(if status.success() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn render(layout: &Layout, args: &Forwarded) -> Result<Command> {
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
    let (python, others) = match &args.python {
        Some(python) => (python.clone(), Vec::new()),
        None => (venv::reference(layout)?.python(), pythons(layout, &args.systems)?),
    };
    let service = cargo::build(layout, Profile::Release, &["gen-svc"])?.executable("gen-svc")?;
    let mut command = benchmark(layout, "generate");
    command.arg("--gen-svc").arg(service).arg("--python").arg(python);
    command.args(others);
    if !args.systems.is_empty() {
        command.arg("--systems").arg(args.systems.join(","));
    }
    command.arg("--model").arg(args.model.clone().unwrap_or_else(|| model::path(layout)));
    command.args(args.only.iter().flat_map(|only| ["--only", only]));
    command.args(&args.arguments);
    Ok(command)
}

/// Installs the named systems that have their own Python, and returns the options that name these.
fn pythons(layout: &Layout, systems: &[String]) -> Result<Vec<OsString>> {
    let mut options = Vec::new();
    for system in systems {
        let python = match system.as_str() {
            "vllm" => Vllm::ensure(layout)?.python(),
            "openvino" | "ik-llama.cpp" => venv::peer(layout, system)?.python(),
            _ => continue,
        };
        let mut option = OsString::from(format!("--pythons={system}="));
        option.push(python);
        options.push(option);
    }
    Ok(options)
}

fn bridge(layout: &Layout, args: &Generate) -> Result<Command> {
    let build = || cargo::text_only_command(layout, Profile::Release, &["gen-bridge"]);
    setup::ensure_beside(layout, Requirement::Model, build())?;
    cargo::run(&mut build())?;
    let python = match &args.python {
        Some(python) => python.clone(),
        None => venv::engines(layout)?,
    };
    let mut command = benchmark(layout, "bridge");
    command.arg("--gen-bridge").arg(Programs::of(Profile::Release)?.executable("gen-bridge")?);
    command.arg("--python").arg(python);
    command.arg("--llama-server").arg(layout.root().join("tests/suite/bridge/llama_server.py"));
    command.arg("--model").arg(args.model.clone().unwrap_or_else(|| model::path(layout)));
    command.args(&args.arguments);
    Ok(command)
}

fn gateway(layout: &Layout, args: &Forwarded) -> Result<Command> {
    setup::ensure(layout)?;
    let built = cargo::build(layout, Profile::Release, &["render-svc", "gen-svc-mock"])?;
    let mut command = benchmark(layout, "gateway");
    command.arg("--render-svc").arg(built.executable("render-svc")?);
    command.arg("--gen-svc-mock").arg(built.executable("gen-svc-mock")?);
    command.args(&args.arguments);
    Ok(command)
}

fn sizing(layout: &Layout, args: &Forwarded) -> Result<Command> {
    setup::ensure(layout)?;
    let built = cargo::build(layout, Profile::Release, &["render-svc", "gen-svc"])?;
    let mut command = benchmark(layout, "sizing");
    command.arg("--render-svc").arg(built.executable("render-svc")?);
    command.arg("--gen-svc").arg(built.executable("gen-svc")?);
    command.arg("--models").arg(model::path(layout)).args(&args.arguments);
    Ok(command)
}

/// The benchmark is a separate workspace with its own target folder.
fn benchmark(layout: &Layout, what: &str) -> Command {
    let mut command = cargo::command(layout);
    command.args(["run", "--release", "--quiet", "--locked", "--manifest-path"]);
    command.arg(layout.root().join("tests/bench/Cargo.toml"));
    command.arg("--target-dir").arg(layout.root().join("target/bench"));
    command.args(["--", what]);
    command
}

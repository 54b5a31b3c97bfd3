//! `cargo xtask bench`: Tandem measured against what people would use instead.

use std::ffi::OsString;
use std::process::{Command, ExitCode};

use anyhow::{Context, Result};
use clap::Subcommand;

use crate::cargo;
use crate::layout::Layout;
use crate::setup::{tokenizers, venv};

/// Measure Tandem against what people would use instead, both in one run on this machine.
///
/// Sets up what is missing and builds with optimization, in a target folder of its own; the first time takes some minutes.
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
    Render(Render),
}

#[derive(Debug, clap::Args)]
struct Render {
    /// Passed on to the benchmark; `-- --help` lists what it takes.
    #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
    arguments: Vec<OsString>,
}

pub(crate) fn run(layout: &Layout, args: &Args) -> Result<ExitCode> {
    let What::Render(Render { arguments }) = &args.what;
    let status = command(layout, arguments)?.status().context("cannot run cargo")?;
    Ok(if status.success() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn command(layout: &Layout, arguments: &[OsString]) -> Result<Command> {
    tokenizers::ensure(layout)?;
    let folder = layout.root().join("deploy/bench");
    let python = venv::transformers(layout)?.python();
    let mut command = cargo::command(layout);
    command.args(["run", "--release", "--quiet", "--locked", "--manifest-path"]).arg(folder.join("Cargo.toml"));
    command.arg("--target-dir").arg(layout.root().join("target/bench"));
    command.args(["--", "render", "--tokenizers"]).arg(layout.tandem().join("tokenizers"));
    command.arg("--python").arg(python);
    let corpus = layout.root().join("../shared/corpus");
    if corpus.is_dir() {
        command.arg("--corpus").arg(corpus);
    }
    command.args(arguments);
    Ok(command)
}

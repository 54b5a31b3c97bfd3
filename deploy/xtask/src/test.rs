//! `cargo xtask test`: every test, after setting up what they need.

mod differential;

use std::env;
use std::ffi::OsString;
use std::iter;
use std::path::PathBuf;
use std::process::{Command, ExitCode};

use anyhow::{Context, Result};

use crate::cargo;
use crate::files;
use crate::layout::Layout;
use crate::setup;
use crate::setup::venv::Venv;
use crate::setup::{envoy, tokenizers};

/// Run every test.
///
/// Sets up what is missing (libtorch, a small model, the tokenizers of well-known models, Envoy, Python's gRPC for the client
/// that is not Rust), then runs `cargo test --workspace` with your arguments. Afterwards plain `cargo test` works too: the
/// suite finds the Python tools in `.tandem/venv`. Set TANDEM_PYTHON to use a Python of yours that has grpcio and
/// grpcio-tools, TANDEM_ENVOY to use an Envoy of yours.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  cargo xtask test                     everything
  cargo xtask test cancellation        tests whose names contain this word
  cargo xtask test --release           any option of cargo test
  cargo xtask test -- --nocapture      options of the test program
  cargo xtask test --differential      the template engine against live transformers, on 100,000 random cases
  cargo xtask test --stress            200 clients that come and go, for ten minutes; 32 answers through 50 kills of
                                       the replicas that give them; 1,000 connections; overload")]
pub(crate) struct Args {
    /// Instead of the tests, compare the template engine with live transformers on this many random cases.
    ///
    /// Installs transformers (without torch) into `.tandem/differential`, once. Takes about ten minutes and two cores.
    #[arg(long, value_name = "CASES", num_args = 0..=1, default_missing_value = "100000")]
    differential: Option<u64>,

    /// Where the random cases start from; a new one every time if it is not given.
    #[arg(long, requires = "differential")]
    seed: Option<u64>,

    /// Instead of the tests, let 200 clients come and go for this many minutes: each must get what it would get alone.
    #[arg(long, value_name = "MINUTES", num_args = 0..=1, default_missing_value = "10", conflicts_with = "differential")]
    stress: Option<u64>,

    /// Passed on to cargo test.
    #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
    arguments: Vec<OsString>,
}

pub(crate) fn run(layout: &Layout, args: &Args) -> Result<ExitCode> {
    if let Some(count) = args.differential {
        return differential::run(layout, count, args.seed);
    }
    if let Some(minutes) = args.stress {
        return stress(layout, minutes);
    }
    // clap takes the first `--` away, which is for cargo; so what was typed is passed on instead of what clap kept.
    let arguments: Vec<OsString> = env::args_os().skip(2).collect();
    let status = command(layout, &arguments)?.status().context("cannot run cargo")?;
    Ok(if status.success() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn stress(layout: &Layout, minutes: u64) -> Result<ExitCode> {
    let tests = ["two_hundred_clients", "thirty_two_answers", "a_thousand_connections", "ten_times_as_many"];
    let options = ["--ignored", "--nocapture", "--test-threads=1"];
    let arguments: Vec<_> = iter::once("--").chain(tests).chain(options).map(OsString::from).collect();
    let mut command = command(layout, &arguments)?;
    let status = command
        .env("TANDEM_STRESS_SECONDS", (minutes * 60).to_string())
        .env("TANDEM_LOAD_SECONDS", (minutes * 30).to_string())
        .status()
        .context("cannot run cargo")?;
    Ok(if status.success() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// The command that runs the tests. Sets up what they need first.
pub(crate) fn command(layout: &Layout, arguments: &[OsString]) -> Result<Command> {
    setup::ensure(layout)?;
    tokenizers::ensure(layout)?;
    envoy::ensure(layout)?;
    let mut command = cargo::command(layout);
    command.args(["test", "--workspace"]).args(arguments).env("TANDEM_PYTHON", python(layout)?);
    Ok(command)
}

fn python(layout: &Layout) -> Result<PathBuf> {
    if let Some(chosen) = env::var_os("TANDEM_PYTHON") {
        return Ok(chosen.into());
    }
    let list = layout.root().join("tests/clients/python/requirements.txt");
    Ok(Venv::ensure(layout, "venv", &files::read(&list)?)?.python())
}

//! `cargo xtask test`: sets up the requirements of the tests, and runs them.

pub(crate) mod clients;
mod cluster;
mod differential;
mod engines;

use std::env;
use std::ffi::OsString;
use std::iter;
use std::process::{Command, ExitCode};

use anyhow::{Context, Result};

use crate::cargo;
use crate::layout::Layout;
use crate::setup;
use crate::setup::{envoy, tokenizers, venv};

/// Run every test.
///
/// Sets up the missing parts: libtorch, a small model, the tokenizers of well-known models, Envoy,
/// gRPC for the Python client. Then runs `cargo test --workspace` with the given arguments. After
/// that, `cargo test` works too, because the suite finds the Python packages in `.tandem/venv`.
/// TANDEM_PYTHON selects another Python with grpcio and grpcio-tools, TANDEM_ENVOY another Envoy.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  cargo xtask test                     everything
  cargo xtask test cancellation        tests whose names contain this word
  cargo xtask test --release           any option of cargo test
  cargo xtask test -- --nocapture      options of the test program
  cargo xtask test --clients           tests the clients of every language
  cargo xtask test --clients go        tests the clients of one language
  cargo xtask test --differential      compares the template engine and the parser of answers with
                                       transformers
  cargo xtask test --cluster           the chart and the images on a real Kubernetes
  cargo xtask test --engines           the bridge in front of vLLM on this processor
  cargo xtask test --stress            200 clients that connect and disconnect, for ten minutes;
                                       32 answers while their replicas are killed 50 times;
                                       300 tasks beside a stuck replica, for each way to be stuck;
                                       polite and greedy callers while replicas are killed, stopped
                                       and cut off, for ten minutes;
                                       a polite caller beside 200 streams of another;
                                       the memory of 390 models that are used and reloaded;
                                       1,000 connections; overload")]
pub(crate) struct Args {
    /// Test the clients of one language, or of all, against both services, instead of the tests.
    ///
    /// Tests the packages of `proto/clients`. With the suites of `tests/clients`, runs the examples of
    /// `proto/docs` and replays the contract's vectors. With all languages, each also reads the requests that the others send. Needs
    /// Python with pip, Node.js with npm, openssl, Go, and a JDK with Maven. A language whose tools are
    /// missing is skipped with a line.
    #[arg(long, value_name = "LANGUAGE", conflicts_with_all = ["differential", "stress"])]
    #[expect(clippy::option_option, reason = "clap's type of an option with an optional value")]
    clients: Option<Option<clients::Language>>,

    /// Test the chart and the images on a real Kubernetes of one node, instead of the tests.
    ///
    /// Needs root, Linux, Go, and some packages of Debian. If one is missing, the command names it and
    /// skips the test. Go builds Kubernetes once into the user's cache, which takes about a quarter of an hour
    /// on two cores. The cluster has its own namespaces and no connection to any network. The steps
    /// take 20 to 40 minutes, and leave nothing behind. With a text, only the steps whose names
    /// contain it run, after the installation.
    #[arg(long, value_name = "STEP", num_args = 0..=1, default_missing_value = "", conflicts_with_all = ["clients", "differential", "stress"])]
    cluster: Option<String>,

    /// Test the bridge in front of vLLM on this processor, instead of the tests.
    ///
    /// Installs vLLM into `.tandem/vllm`, once. Needs Linux on x86-64, Python 3.10, 20 GB of disk and 10 GB
    /// of memory, and takes up to 40 minutes on two cores. If it cannot be installed, the command says why
    /// and skips the test. With a text, only the tests whose names start with it run.
    #[arg(long, value_name = "TEST", num_args = 0..=1, default_missing_value = "", conflicts_with_all = ["clients", "cluster", "differential", "stress"])]
    engines: Option<String>,

    /// Compare the template engine and the parser of answers with transformers, on this many random
    /// cases each, instead of the tests.
    ///
    /// Installs transformers (without torch) into `.tandem/transformers`, once. Takes about ten
    /// minutes on two cores.
    #[arg(long, value_name = "CASES", num_args = 0..=1, default_missing_value = "100000")]
    differential: Option<u64>,

    /// Seed of the random cases. [default: the current time]
    #[arg(long, requires = "differential")]
    seed: Option<u64>,

    /// Run the stress tests for this many minutes, instead of the tests. They compare each client's
    /// answers under load with its answers without load.
    #[arg(long, value_name = "MINUTES", num_args = 0..=1, default_missing_value = "10", conflicts_with = "differential")]
    stress: Option<u64>,

    /// Arguments for cargo test.
    #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
    arguments: Vec<OsString>,
}

pub(crate) fn run(layout: &Layout, args: &Args) -> Result<ExitCode> {
    if let Some(only) = args.clients {
        return clients::run(layout, only);
    }
    if let Some(filter) = &args.cluster {
        return cluster::run(layout, filter);
    }
    if let Some(filter) = &args.engines {
        return engines(layout, filter);
    }
    if let Some(count) = args.differential {
        return differential::run(layout, count, args.seed);
    }
    if let Some(minutes) = args.stress {
        return stress(layout, minutes);
    }
    // clap removes the first `--`, which cargo needs. The original arguments are therefore
    // forwarded.
    let arguments: Vec<OsString> = env::args_os().skip(2).collect();
    let mut command = command(layout, &arguments)?;
    cargo::build_text_only(layout)?;
    let status = command.status().context("cannot run cargo")?;
    Ok(if status.success() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// Runs the tests against vLLM whose names start with `filter`.
fn engines(layout: &Layout, filter: &str) -> Result<ExitCode> {
    let Some(vllm) = engines::vllm(layout)? else { return Ok(ExitCode::SUCCESS) };
    let filters = ["bridge::vllm", "vectors::bridged"].map(|area| format!("{area}::{filter}"));
    let options = ["--ignored", "--nocapture", "--test-threads=1"].map(str::to_owned);
    let arguments: Vec<_> = iter::once("--".to_owned()).chain(filters).chain(options).map(OsString::from).collect();
    let mut command = command(layout, &arguments)?;
    let status = command.env("TANDEM_VLLM", vllm.folder).status().context("cannot run cargo")?;
    Ok(if status.success() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn stress(layout: &Layout, minutes: u64) -> Result<ExitCode> {
    let tests = [
        "two_hundred_clients",
        "thirty_two_answers",
        "a_thousand_connections",
        "ten_times_as_many",
        "three_hundred_tasks",
        "chaos_with_greedy_callers",
        "two_hundred_streams",
        "forty_streams",
        "memory_of_hundreds",
    ];
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

/// Sets up the requirements of the tests, and returns the command that runs them.
pub(crate) fn command(layout: &Layout, arguments: &[OsString]) -> Result<Command> {
    setup::ensure(layout)?;
    tokenizers::ensure(layout)?;
    envoy::ensure(layout)?;
    venv::engines(layout)?;
    let mut command = cargo::command(layout);
    command.args(["test", "--workspace"]).args(arguments).env("TANDEM_PYTHON", venv::clients(layout)?);
    Ok(command)
}

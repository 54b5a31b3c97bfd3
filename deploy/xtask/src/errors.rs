//! `cargo xtask errors`: generates the page of error reasons.

use std::process::ExitCode;

use anyhow::{Context, Result, bail};

use crate::cargo;
use crate::layout::Layout;

const PAGE: &str = "proto/ERRORS.md";

/// Generate proto/ERRORS.md from the table of error reasons.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {}

pub(crate) fn run(layout: &Layout) -> Result<ExitCode> {
    let arguments = ["run", "--quiet", "--package", "tandem-common", "--example", "errors_page"];
    let output = cargo::command(layout).args(arguments).output().context("cannot run cargo")?;
    if !output.status.success() {
        bail!("cargo {} failed: {}", arguments.join(" "), String::from_utf8_lossy(&output.stderr));
    }
    std::fs::write(layout.root().join(PAGE), output.stdout).with_context(|| format!("cannot write {PAGE}"))?;
    Ok(ExitCode::SUCCESS)
}

//! `cargo xtask docs`: generates the pages of the contract.

use std::process::ExitCode;

use anyhow::{Context, Result, bail};

use crate::cargo;
use crate::layout::Layout;

/// The test that compares the pages, and writes them if TANDEM_UPDATE_DOCS is set.
const TEST: &str = "contract::pages::the_pages_are_up_to_date_with_the_contract_and_the_examples";

/// Generate proto/docs from the comments of the .proto files and the examples of each language.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {}

pub(crate) fn run(layout: &Layout) -> Result<ExitCode> {
    let arguments = ["test", "--quiet", "--workspace", "--test", "light", "--", "--exact", TEST];
    let mut command = cargo::command(layout);
    let output = command.args(arguments).env("TANDEM_UPDATE_DOCS", "1").output().context("cannot run cargo")?;
    if !output.status.success() {
        let texts = [output.stdout, output.stderr].map(|text| String::from_utf8_lossy(&text).into_owned());
        bail!("cargo {} failed: {}", arguments.join(" "), texts.join("\n"));
    }
    Ok(ExitCode::SUCCESS)
}

//! `cargo xtask docs`: generates the pages of the contract, the names of flags in the chart's schema, and the table of
//! fields that engines lack.

use std::process::ExitCode;

use anyhow::{Context, Result, bail};

use crate::cargo;
use crate::layout::Layout;

/// The tests that compare the files, and write them if TANDEM_UPDATE_DOCS is set.
const TESTS: [&str; 3] = [
    "contract::pages::the_pages_are_up_to_date_with_the_contract_and_the_examples",
    "contract::chart_flags::the_chart_accepts_the_flags_of_the_programs_and_no_others",
    "contract::engine_fields::the_table_of_the_fields_that_engines_lack_is_up_to_date",
];

/// Generate proto/docs, and the names of flags in the chart's schema.
///
/// The pages come from the comments of the .proto files and the examples of each language. The names are those of
/// `serve` of each program, in `deploy/chart/values.schema.json`. The table of the fields that engines behind a bridge
/// lack is in `gen-svc/bridge/README.md`.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {}

pub(crate) fn run(layout: &Layout) -> Result<ExitCode> {
    let arguments = [&["test", "--quiet", "--workspace", "--test", "light", "--", "--exact"][..], &TESTS].concat();
    let mut command = cargo::command(layout);
    let output = command.args(&arguments).env("TANDEM_UPDATE_DOCS", "1").output().context("cannot run cargo")?;
    if !output.status.success() {
        let texts = [output.stdout, output.stderr].map(|text| String::from_utf8_lossy(&text).into_owned());
        bail!("cargo {} failed: {}", arguments.join(" "), texts.join("\n"));
    }
    Ok(ExitCode::SUCCESS)
}

//! `cargo xtask test --engines`: the bridge in front of vLLM.

use std::ffi::OsString;
use std::iter;
use std::process::ExitCode;

use anyhow::{Context as _, Result};

use crate::layout::Layout;
use crate::setup;
use crate::setup::vllm::Vllm;

/// Installs vLLM, and runs the tests whose names contain `filter`. Without vLLM, they are skipped with a line.
pub(super) fn run(layout: &Layout, filter: &str) -> Result<ExitCode> {
    if !cfg!(all(target_os = "linux", target_arch = "x86_64")) {
        println!("skipped: vLLM for a CPU needs Linux on x86-64");
        return Ok(ExitCode::SUCCESS);
    }
    setup::ensure(layout)?;
    let vllm = match Vllm::ensure(layout) {
        Ok(vllm) => vllm,
        Err(error) => {
            println!("skipped: vLLM cannot be installed (20 GB of disk, 10 GB of memory, Python 3.10): {error:#}");
            return Ok(ExitCode::SUCCESS);
        }
    };
    let filter = format!("bridge::vllm::{filter}");
    let options = [&filter, "--ignored", "--nocapture", "--test-threads=1"];
    let arguments: Vec<_> = iter::once("--").chain(options).map(OsString::from).collect();
    let mut command = super::command(layout, &arguments)?;
    let status = command.env("TANDEM_VLLM", vllm.folder).status().context("cannot run cargo")?;
    Ok(if status.success() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

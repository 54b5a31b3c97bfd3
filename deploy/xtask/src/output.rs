//! The output of commands.

use std::process::Command;

use anyhow::{Context, Result, bail};

/// Runs a command and returns its standard output. The locale is C, as the callers expect.
pub(crate) fn output_of(command: &mut Command) -> Result<String> {
    let program = command.get_program().display().to_string();
    let output = command.env("LC_ALL", "C").output().with_context(|| format!("cannot run {program}"))?;
    if !output.status.success() {
        bail!("{program} failed: {}", String::from_utf8_lossy(&output.stderr).trim());
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

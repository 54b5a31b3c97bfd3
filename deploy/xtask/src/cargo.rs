//! Cargo, called again from within `cargo xtask`.

use std::env;
use std::ffi::OsString;
use std::io::{BufRead, BufReader};
use std::path::PathBuf;
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail};
use serde_json::Value;

use crate::layout::Layout;

/// The cargo that runs us, at the repository's root.
pub(crate) fn command(layout: &Layout) -> Command {
    let mut command = Command::new(env::var_os("CARGO").unwrap_or_else(|| OsString::from("cargo")));
    command.current_dir(layout.root());
    command
}

/// Forgets what was built of a package.
pub(crate) fn clean(layout: &Layout, package: &str) -> Result<()> {
    for profile in ["dev", "release"] {
        let arguments = ["clean", "--quiet", "--package", package, "--profile", profile];
        let status = command(layout).args(arguments).status().context("cannot run cargo")?;
        if !status.success() {
            bail!("cargo {} failed", arguments.join(" "));
        }
    }
    Ok(())
}

/// What a build made.
#[derive(Debug)]
pub(crate) struct Artifacts(Vec<Value>);

impl Artifacts {
    pub(crate) fn executable(&self, binary: &str) -> Result<PathBuf> {
        let is_it = |artifact: &&Value| artifact["target"]["name"] == binary && artifact["executable"].is_string();
        let path = self.0.iter().find(is_it).and_then(|artifact| artifact["executable"].as_str());
        path.map(PathBuf::from).with_context(|| format!("cargo built no {binary}"))
    }
}

/// How a build is optimized.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Profile {
    Dev,
    Release,
}

/// Builds binaries. Cargo's own progress shows.
///
/// No package is named: cargo then gives dependencies the features that the whole workspace wants, as a plain `cargo build`
/// does, and nothing is compiled a second time with others.
pub(crate) fn build(layout: &Layout, profile: Profile, binaries: &[&str]) -> Result<Artifacts> {
    let mut command = command(layout);
    let profile = match profile {
        Profile::Dev => "dev",
        Profile::Release => "release",
    };
    command
        .args(["build", "--profile", profile, "--message-format=json-render-diagnostics"])
        .args(binaries.iter().flat_map(|binary| ["--bin", binary]))
        .stdout(Stdio::piped());
    let mut child = command.spawn().context("cannot run cargo")?;
    let stdout = child.stdout.take().context("cargo has no stdout")?;
    let lines = BufReader::new(stdout).lines().map_while(Result::ok);
    let artifacts = lines.filter_map(|line| serde_json::from_str(&line).ok()).collect();
    if !child.wait().context("cannot wait for cargo")?.success() {
        bail!("the build failed; what cargo printed above says why");
    }
    Ok(Artifacts(artifacts))
}

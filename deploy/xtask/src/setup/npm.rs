//! Archives of an npm registry, fetched by npm: its configuration names the registry, the proxy and
//! the certificates.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail};

use super::pins::Package;
use super::progress;

/// A program that runs npm.
#[derive(Debug, Clone)]
pub(super) struct Npm {
    program: PathBuf,
    /// npm's own script, if the program is Node.js.
    script: Option<PathBuf>,
}

impl Npm {
    /// Returns the npm of the system.
    pub(super) fn system() -> Self {
        Self { program: "npm".into(), script: None }
    }

    /// Returns the npm of an unpacked Node.js.
    pub(super) fn of_node(program: PathBuf, script: PathBuf) -> Self {
        Self { program, script: Some(script) }
    }

    /// Returns true if npm runs.
    pub(super) fn is_installed(&self) -> bool {
        self.command().arg("--version").output().is_ok_and(|output| output.status.success())
    }

    /// Downloads an archive into `folder` and returns its path.
    pub(super) fn download(&self, package: &Package, folder: &Path) -> Result<PathBuf> {
        let mut npm = self.command();
        npm.args(["pack", "--silent", "--ignore-scripts"]).arg(format!("{}@{}", package.project, package.version));
        npm.current_dir(folder).stdin(Stdio::null()).stdout(Stdio::null());
        let mut child = npm.spawn().context("cannot run npm")?;
        let status = progress::watch(&mut child, &package.label(), folder).context("cannot wait for npm")?;
        if !status.success() {
            bail!(
                "npm cannot fetch {}. Check the network, and the registry and proxy that `npm config list` shows; then repeat the command",
                package.label()
            );
        }
        only_file(folder)
    }

    fn command(&self) -> Command {
        let mut command = Command::new(&self.program);
        command.args(&self.script);
        command
    }
}

/// npm derives the file's name from the project's name and scope.
fn only_file(folder: &Path) -> Result<PathBuf> {
    let mut entries = fs::read_dir(folder).with_context(|| format!("cannot read {}", folder.display()))?;
    let entry = entries.next().context("npm has written no archive")?;
    Ok(entry.with_context(|| format!("cannot read {}", folder.display()))?.path())
}

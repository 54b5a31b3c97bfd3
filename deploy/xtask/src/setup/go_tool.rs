//! Programs in Go, for the checks of the chart. The Go command builds each once, from a module below
//! `deploy/chart-tools` whose `go.sum` pins the digest of every dependency.

use std::env;
use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};

use super::lock::lock;
use crate::files::{make_folder, read, rename, write};
use crate::layout::Layout;

/// A program and its module.
#[derive(Debug)]
pub(crate) struct GoTool {
    /// The folder below `deploy/chart-tools`, and the program's name.
    name: &'static str,
    /// The package of the program, as the module names it.
    package: &'static str,
    /// The environment variable that names another program.
    variable: &'static str,
    /// The time to build it on two cores.
    time: &'static str,
}

/// Helm.
pub(crate) const HELM: GoTool =
    GoTool { name: "helm", package: "helm.sh/helm/v4/cmd/helm", variable: "TANDEM_HELM", time: "some minutes" };

/// The API server of Kubernetes, which validates manifests.
pub(crate) const API_SERVER: GoTool =
    GoTool { name: "apiserver", package: ".", variable: "TANDEM_APISERVER", time: "about a quarter of an hour" };

impl GoTool {
    /// Builds the program unless it is built, and returns its path.
    pub(crate) fn ensure(&self, layout: &Layout) -> Result<PathBuf> {
        if let Some(chosen) = env::var_os(self.variable) {
            return Ok(chosen.into());
        }
        let module = layout.root().join("deploy/chart-tools").join(self.name);
        let (sources, folder) = (sources(&module)?, layout.tandem().join(self.name));
        let program = folder.join(self.name);
        if !is_built(&folder, &sources) {
            let _lock = lock(layout)?;
            if !is_built(&folder, &sources) {
                self.build(&module, &program)?;
                write(&folder.join(STAMP), &sources)?;
            }
        }
        Ok(program)
    }

    fn build(&self, module: &Path, program: &Path) -> Result<()> {
        eprintln!("Building {} with Go, once; this takes {}.", self.name, self.time);
        make_folder(program.parent().unwrap_or(Path::new(".")))?;
        let partial = program.with_extension("partial");
        let mut go = go();
        go.current_dir(module).args(["build", "-ldflags", "-s -w", "-o"]).arg(&partial).arg(self.package);
        let status = go.env("CGO_ENABLED", "0").status();
        let status = status.with_context(|| format!("cannot run go; install Go, or set {}", self.variable))?;
        if !status.success() {
            bail!("go cannot build {}; see its messages above", self.name);
        }
        rename(&partial, program)
    }
}

/// The file that marks a complete build. It has the text of the module's files.
const STAMP: &str = "sources.txt";

fn is_built(folder: &Path, sources: &str) -> bool {
    read(&folder.join(STAMP)).is_ok_and(|stamp| stamp == sources)
}

/// Returns the text of all files of a module.
fn sources(module: &Path) -> Result<String> {
    let entries = fs::read_dir(module).with_context(|| format!("cannot read {}", module.display()))?;
    let mut files = entries.map(|entry| Ok(entry?.path())).collect::<Result<Vec<_>>>()?;
    files.sort();
    files.iter().map(|file| read(file)).collect()
}

/// Returns the Go command. Programs contain no state of a version control system.
pub(crate) fn go() -> Command {
    let mut go = Command::new("go");
    go.env("GOFLAGS", "-buildvcs=false -modcacherw");
    go
}

/// Downloads a module, and returns its folder. `digest` is its pinned digest, as in a `go.sum`.
///
/// # Errors
/// The module cannot be downloaded, or has another digest.
pub(crate) fn module(layout: &Layout, name: &str, digest: &str) -> Result<PathBuf> {
    make_folder(&layout.tandem())?;
    let output = go().current_dir(layout.tandem()).args(["mod", "download", "-json", name]).output();
    let output = output.context("cannot run go; install Go")?;
    let text = String::from_utf8_lossy(&output.stdout);
    let value = |key: &str| {
        let line = text.lines().find_map(|line| line.trim().strip_prefix(&format!("\"{key}\": \"")));
        line.and_then(|rest| rest.split('"').next())
    };
    match (value("Dir"), value("Sum")) {
        (Some(folder), Some(sum)) if sum == digest => Ok(OsStr::new(folder).into()),
        (Some(_), Some(sum)) => bail!("{name} has the digest {sum}, expected {digest}"),
        _ => bail!("go cannot download {name}: {}{}", text.trim(), String::from_utf8_lossy(&output.stderr).trim()),
    }
}

//! Wheels, fetched by pip: its configuration names the index, the proxy and the certificates.

use std::fs;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail};

use super::pins::{PYTHON_VERSION, Package};
use super::progress;
use super::python::Python;
use crate::files::make_folder;

/// Downloads a wheel into `folder` and returns its path. pip checks the pinned hash.
pub(super) fn download(python: &Python, package: &Package, folder: &Path) -> Result<PathBuf> {
    python.require_pip()?;
    // pip downloads into TMPDIR and copies the wheel from there. A system's own /tmp may be too
    // small for it.
    let temporary = folder.join("tmp");
    make_folder(&temporary)?;
    let mut pip = command(python, package, folder);
    pip.env("TMPDIR", &temporary).stdin(Stdio::piped());
    let mut child = pip.spawn().context("cannot run pip")?;
    let requirement = format!("{}==={} --hash=sha256:{}\n", package.project, package.version, package.sha256);
    let written = child.stdin.take().context("pip has no stdin")?.write_all(requirement.as_bytes());
    let status = progress::watch(&mut child, &package.label(), &temporary).context("cannot wait for pip")?;
    if !status.success() || written.is_err() {
        bail!(
            "pip cannot fetch {} (its messages are above). Check the network, and the index and proxy that `python3 -m pip config list` shows; then repeat the command",
            package.file
        );
    }
    fs::remove_dir_all(&temporary).with_context(|| format!("cannot remove {}", temporary.display()))?;
    let path = folder.join(package.file);
    if !path.exists() {
        bail!("pip chose another file than {}: the configured index lacks the pinned one", package.file);
    }
    Ok(path)
}

fn command(python: &Python, package: &Package, folder: &Path) -> Command {
    let mut pip = python.pip();
    // Without pip's cache: it would keep a second copy outside this project's folder.
    pip.args(["download", "--quiet", "--progress-bar", "off", "--no-cache-dir", "--no-input"]);
    pip.args(["--no-deps", "--only-binary=:all:", "--require-hashes", "--python-version", PYTHON_VERSION]);
    pip.args(package.platforms().flat_map(|platform| ["--platform", platform]));
    pip.arg("--dest").arg(folder).args(["--requirement", "/dev/stdin"]);
    pip
}

//! The Go command.

use std::ffi::OsStr;
use std::path::PathBuf;
use std::process::Command;

use anyhow::{Context, Result, bail};

use crate::files::make_folder;
use crate::layout::Layout;

/// Returns the Go command. Programs contain no state of a version control system.
pub(crate) fn command() -> Command {
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
    let output = command().current_dir(layout.tandem()).args(["mod", "download", "-json", name]).output();
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

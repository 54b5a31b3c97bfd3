//! cargo-cyclonedx, which writes software bills of materials. cargo builds it once.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};

use super::lock::lock;
use crate::cargo;
use crate::files::{remove_folder, rename};
use crate::layout::Layout;

/// The version of the program. Its package pins the digest of each dependency.
const VERSION: &str = "0.5.9";

/// Builds the program unless it is built, and returns its path.
pub(crate) fn ensure(layout: &Layout) -> Result<PathBuf> {
    let folder = layout.tandem().join(format!("cyclonedx-{VERSION}"));
    if !folder.exists() {
        let _lock = lock(layout)?;
        if !folder.exists() {
            install(layout, &folder)?;
        }
    }
    Ok(folder.join("bin/cargo-cyclonedx"))
}

/// The folder gets its name once it is complete.
fn install(layout: &Layout, folder: &Path) -> Result<()> {
    eprintln!("Building cargo-cyclonedx {VERSION}, once; this takes some minutes.");
    let partial = folder.with_extension("partial");
    let mut install = cargo::command(layout);
    install.args(["install", "--quiet", "--locked", "--version", VERSION, "cargo-cyclonedx"]);
    install.arg("--root").arg(&partial).arg("--target-dir").arg(partial.join("target"));
    if !install.status().context("cannot run cargo")?.success() {
        bail!("cargo cannot install cargo-cyclonedx; see its messages above");
    }
    remove_folder(&partial.join("target"))?;
    rename(&partial, folder)
}

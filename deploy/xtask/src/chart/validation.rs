//! Comparison of the manifests with the schemas of their kinds.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};

use super::definitions;
use crate::files::{read, write};
use crate::layout::Layout;
use crate::setup::programs::KUBERNETES;
use crate::setup::venv;

/// Objects whose definition no package has.
const UNDEFINED: &str = "kind: InferencePool\n";

/// # Errors
/// An object differs from its schema, or has none.
pub(super) fn run(layout: &Layout, manifests: &[PathBuf]) -> Result<()> {
    let mut validate = Command::new(venv::schemas(layout)?);
    validate.arg(layout.root().join("deploy/chart-tools/validate.py")).arg(KUBERNETES);
    for file in definitions::ensure(layout)? {
        validate.arg("--definition").arg(file);
    }
    for manifest in manifests {
        validate.arg(defined(manifest)?);
    }
    let status = validate.status().context("cannot run Python")?;
    if !status.success() {
        bail!("manifests differ from their schemas; see the lines above");
    }
    Ok(())
}

/// Writes the manifests without the undefined objects, and returns the file.
pub(crate) fn defined(manifest: &Path) -> Result<PathBuf> {
    let text = read(manifest)?;
    let kept: Vec<_> = text.split("\n---\n").filter(|part| !format!("{part}\n").contains(UNDEFINED)).collect();
    let file = manifest.with_extension("defined");
    write(&file, &(kept.join("\n---\n") + "\n"))?;
    Ok(file)
}

//! Validation of the manifests by a real API server.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};

use super::definitions;
use crate::files::{read, write};
use crate::layout::Layout;
use crate::setup::go_tool::API_SERVER;

/// Objects whose definition no Go module has.
const UNDEFINED: &str = "kind: InferencePool\n";

/// Lets the API server create every object as a dry run. `manifests` has the file of values and the
/// manifests of each case. A case with a folder of the node must break the restricted standard.
pub(super) fn run(layout: &Layout, manifests: &[(PathBuf, PathBuf)]) -> Result<()> {
    let mut server = Command::new(API_SERVER.ensure(layout)?);
    for file in definitions::ensure(layout)? {
        server.arg("--crd").arg(file);
    }
    let (privileged, restricted): (Vec<_>, Vec<_>) =
        manifests.iter().partition(|(values, _)| read(values).is_ok_and(|text| text.contains("host://")));
    for (_, manifest) in privileged {
        server.arg("--privileged").arg(defined(manifest)?);
    }
    for (_, manifest) in restricted {
        server.arg(defined(manifest)?);
    }
    let status = server.status().context("cannot run the API server")?;
    if !status.success() {
        bail!("the API server refuses manifests; see its messages above");
    }
    Ok(())
}

/// Writes the manifests without the undefined objects, and returns the file.
fn defined(manifest: &Path) -> Result<PathBuf> {
    let text = read(manifest)?;
    let kept: Vec<_> = text.split("\n---\n").filter(|part| !format!("{part}\n").contains(UNDEFINED)).collect();
    let file = manifest.with_extension("defined");
    write(&file, &(kept.join("\n---\n") + "\n"))?;
    Ok(file)
}

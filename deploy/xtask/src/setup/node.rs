//! Node.js with npm, from a wheel, for machines without npm.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt as _;

use anyhow::{Context, Result};

use super::npm::Npm;
use super::package::Store;
use super::pins;

/// Returns the system's npm, or else one that this unpacks among the downloads.
pub(super) fn npm(store: &Store) -> Result<Npm> {
    let system = Npm::system();
    if system.is_installed() {
        return Ok(system);
    }
    let package = pins::node().context("npm is missing, and no Node.js is pinned for this platform; install npm")?;
    let folder = store.folder().join("node");
    let program = folder.join("bin/node");
    if !program.exists() {
        eprintln!("npm is not installed; fetching Node.js {} for this set-up.", package.version);
        store.unpack(&package, &folder)?;
        fs::set_permissions(&program, Permissions::from_mode(0o755))
            .with_context(|| format!("cannot make {} executable", program.display()))?;
    }
    Ok(Npm::of_node(program, folder.join("lib/node_modules/npm/bin/npm-cli.js")))
}

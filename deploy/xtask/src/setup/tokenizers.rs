//! Tokenizers of well-known models, which tests compare with what transformers makes of them.

use std::path::{Path, PathBuf};

use anyhow::Result;

use super::package::Store;
use super::pins;
use super::python::Python;
use crate::files::{make_folder, remove_folder, rename};
use crate::layout::Layout;

/// Fetches those that are missing, about 130 MB together.
pub(crate) fn ensure(layout: &Layout) -> Result<()> {
    if is_complete(layout) {
        return Ok(());
    }
    let _lock = super::lock(layout)?;
    if is_complete(layout) {
        return Ok(());
    }
    let store = Store::new(layout.downloads(), Python::find()?);
    eprintln!("Setting up the tokenizers of well-known models for tests, once.");
    make_folder(&layout.tokenizers())?;
    for (name, package) in pins::TOKENIZERS {
        let place = place(layout, name);
        if !place.exists() {
            install(package, &store, &layout.downloads().join(name), &place)?;
        }
    }
    store.clear();
    Ok(())
}

/// The folder gets its name only once it is whole.
fn install(package: &pins::Package, store: &Store, folder: &Path, place: &Path) -> Result<()> {
    remove_folder(folder)?;
    store.unpack(package, folder)?;
    rename(folder, place)
}

fn is_complete(layout: &Layout) -> bool {
    pins::TOKENIZERS.iter().all(|(name, _)| place(layout, name).exists())
}

fn place(layout: &Layout, name: &str) -> PathBuf {
    layout.tokenizers().join(name)
}

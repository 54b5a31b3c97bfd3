//! Tokenizers of well-known models. Tests compare them with transformers.

use std::path::{Path, PathBuf};

use anyhow::Result;

use super::lock::lock;
use super::node;
use super::package::Store;
use super::pins;
use super::python::Python;
use crate::files::{make_folder, remove_folder, rename};
use crate::layout::Layout;

/// Installs the missing tokenizers, about 130 MB together.
pub(crate) fn ensure(layout: &Layout) -> Result<()> {
    if is_complete(layout) {
        return Ok(());
    }
    let _lock = lock(layout)?;
    if is_complete(layout) {
        return Ok(());
    }
    eprintln!("Setting up the tokenizers of well-known models for tests, once.");
    let store = Store::new(layout.downloads(), Python::find()?);
    let npm = node::npm(&store)?;
    let store = store.with_npm(npm);
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

/// The folder gets its name once it is complete.
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

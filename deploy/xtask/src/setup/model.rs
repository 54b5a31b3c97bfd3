//! The default model of chat and tests.

use std::path::PathBuf;

use anyhow::Result;

use super::package::Store;
use super::pins;
use crate::files::{make_folder, rename};
use crate::layout::Layout;

const FILE: &str = "SmolLM2-135M-Instruct-Q4_1.gguf";

pub(crate) fn path(layout: &Layout) -> PathBuf {
    layout.models().join(FILE)
}

/// Installs the model. The file gets its name once it is complete.
pub(super) fn install(layout: &Layout, store: &Store) -> Result<()> {
    eprintln!("Setting up the default model, {FILE}.");
    let (folder, path) = (layout.downloads().join("model"), path(layout));
    store.unpack(&pins::MODEL, &folder)?;
    make_folder(&layout.models())?;
    rename(&folder.join(FILE), &path)
}

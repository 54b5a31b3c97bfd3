//! The default model of chat and tests.

use std::fs;
use std::path::PathBuf;

use anyhow::{Context as _, Result};

use super::package::Store;
use super::pins;
use crate::files::{make_folder, rename};
use crate::layout::Layout;

const FILE: &str = "SmolLM2-135M-Instruct-Q4_1.gguf";

/// The sampling values that the model's authors recommend. With temperature 1, a model of this size
/// loses the thread.
const SAMPLING: &str = "{\n  \"temperature\": 0.2,\n  \"top_p\": 0.9\n}\n";

/// Returns true if the model and its sampling defaults are installed.
pub(super) fn is_installed(layout: &Layout) -> bool {
    path(layout).exists() && sampling_path(layout).exists()
}

/// Returns the file of the sampling defaults, which gen-svc reads beside the model.
fn sampling_path(layout: &Layout) -> PathBuf {
    path(layout).with_extension("generation_config.json")
}

pub(crate) fn path(layout: &Layout) -> PathBuf {
    layout.models().join(FILE)
}

/// Installs the model, unless it is installed, and its sampling defaults. The model's file gets its
/// name once it is complete.
pub(super) fn install(layout: &Layout, store: &Store) -> Result<()> {
    if !path(layout).exists() {
        install_model(layout, store)?;
    }
    let file = sampling_path(layout);
    fs::write(&file, SAMPLING).with_context(|| format!("cannot write {}", file.display()))
}

fn install_model(layout: &Layout, store: &Store) -> Result<()> {
    eprintln!("Setting up the default model, {FILE}.");
    let (folder, path) = (layout.downloads().join("model"), path(layout));
    store.unpack(&pins::MODEL, &folder)?;
    make_folder(&layout.models())?;
    rename(&folder.join(FILE), &path)
}

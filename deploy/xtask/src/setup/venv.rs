//! Python tools for tests and CI, each set in a folder of its own under `.tandem/`.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};

use super::python::Python;
use crate::files::{read, remove_folder, write};
use crate::layout::Layout;

/// Written last, into the folder of the Python version that the tools were installed for, so that neither an interrupted
/// installation nor one for another Python version is taken for whole.
const STAMP: &str = "tandem-requirements.txt";

/// What pip takes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Takes {
    /// What is listed, as wheels: compiling gRPC takes longer than everything else together.
    Listed,
    /// And whatever that needs; what has no wheel is compiled.
    Dependencies,
}

/// A virtual environment that holds the pinned requirements.
#[derive(Debug)]
pub(crate) struct Venv {
    folder: PathBuf,
    takes: Takes,
}

impl Venv {
    /// Makes the environment unless it is there. `requirements` is the text of a pip requirements file.
    pub(crate) fn ensure(layout: &Layout, name: &str, requirements: &str) -> Result<Self> {
        Self::ensure_with(layout, name, requirements, Takes::Listed)
    }

    fn ensure_with(layout: &Layout, name: &str, requirements: &str, takes: Takes) -> Result<Self> {
        let venv = Self { folder: layout.tandem().join(name), takes };
        if !venv.holds(requirements) {
            let _lock = super::lock(layout)?;
            if !venv.holds(requirements) {
                venv.install(requirements)?;
            }
        }
        Ok(venv)
    }

    pub(crate) fn python(&self) -> PathBuf {
        python_in(&self.folder)
    }

    /// A program that a package brought.
    pub(crate) fn program(&self, name: &str) -> Result<PathBuf> {
        Ok(site_packages(&self.folder)?.join("bin").join(name))
    }

    fn holds(&self, requirements: &str) -> bool {
        let stamp = site_packages(&self.folder).and_then(|folder| read(&folder.join(STAMP)));
        stamp.is_ok_and(|stamp| stamp == requirements)
    }

    fn install(&self, requirements: &str) -> Result<()> {
        let python = Python::find()?;
        python.require_pip()?;
        remove_folder(&self.folder)?;
        make_empty(&python, &self.folder)?;
        let packages = site_packages(&self.folder)?;
        eprintln!("Setting up {}, once.", self.folder.display());
        fill(&python, &packages, requirements, self.takes)?;
        write(&packages.join(STAMP), requirements)
    }
}

/// The transformers that Tandem is compared with.
pub(crate) fn transformers(layout: &Layout) -> Result<Venv> {
    let list = layout.root().join("tests/differential/requirements.txt");
    Venv::ensure(layout, "transformers", &read(&list)?)
}

/// llama.cpp, and transformers with torch, that generation is compared with.
pub(crate) fn reference(layout: &Layout) -> Result<Venv> {
    let list = layout.root().join("tests/bench/requirements.txt");
    Venv::ensure_with(layout, "reference", &read(&list)?, Takes::Dependencies)
}

/// Without pip inside, because some distributions split off the part of venv that brings it.
fn make_empty(python: &Python, folder: &Path) -> Result<()> {
    let status =
        python.command().args(["-m", "venv", "--without-pip"]).arg(folder).status().context("cannot run python")?;
    if !status.success() {
        bail!(
            "Python cannot make a virtual environment; what it printed above says why (your system's package may be python3-venv)"
        );
    }
    Ok(())
}

/// The outer Python's pip installs into the environment, which is of the same version.
fn fill(python: &Python, packages: &Path, requirements: &str, takes: Takes) -> Result<()> {
    let list = packages.join("requirements.partial");
    write(&list, requirements)?;
    let mut pip = python.pip();
    pip.args(["install", "--quiet", "--target"]).arg(packages).arg("--requirement").arg(&list);
    if takes == Takes::Listed {
        pip.args(["--no-deps", "--only-binary=:all:"]);
    }
    pip.env("PIP_ROOT_USER_ACTION", "ignore"); // Its warning is about system folders, where nothing goes.
    if !pip.status().context("cannot run pip")?.success() {
        bail!("pip cannot install these; what it printed above says why:\n{requirements}");
    }
    fs::remove_file(&list).with_context(|| format!("cannot remove {}", list.display()))
}

fn python_in(folder: &Path) -> PathBuf {
    folder.join("bin/python")
}

fn site_packages(folder: &Path) -> Result<PathBuf> {
    let python = Python::at(python_in(folder));
    Ok(python.ask("import sysconfig; print(sysconfig.get_path('purelib'))")?.into())
}

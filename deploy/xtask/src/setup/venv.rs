//! Python tools for tests and CI: one virtual environment per set, under `.tandem/`.

use std::env;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};

use super::lock::lock;
use super::python::Python;
use crate::files::{read, remove_folder, write};
use crate::layout::Layout;

/// The file that marks a complete installation. It is in the folder of one Python version, so that
/// another version installs again.
const STAMP: &str = "tandem-requirements.txt";

/// The packages that pip installs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Scope {
    /// The listed packages, as wheels: to compile gRPC takes longer than everything else together.
    Listed,
    /// The listed packages and their dependencies. A package without a wheel is compiled.
    Dependencies,
}

/// Pinned because a newer version may have new rules of linting.
const BUF: &str = "buf-bin==1.75.0\n";

/// A virtual environment with the pinned requirements.
#[derive(Debug)]
pub(crate) struct Venv {
    folder: PathBuf,
    scope: Scope,
}

impl Venv {
    /// Installs the environment, unless it is installed. `requirements` is the text of a pip
    /// requirements file.
    pub(crate) fn ensure(layout: &Layout, name: &str, requirements: &str) -> Result<Self> {
        Self::ensure_with(layout, name, requirements, Scope::Listed)
    }

    fn ensure_with(layout: &Layout, name: &str, requirements: &str, scope: Scope) -> Result<Self> {
        let venv = Self { folder: layout.tandem().join(name), scope };
        if !venv.holds(requirements) {
            let _lock = lock(layout)?;
            if !venv.holds(requirements) {
                venv.install(requirements)?;
            }
        }
        Ok(venv)
    }

    pub(crate) fn python(&self) -> PathBuf {
        python_in(&self.folder)
    }

    /// Returns the path of a program that a package installed.
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
        fill(&python, &packages, requirements, self.scope)?;
        write(&packages.join(STAMP), requirements)
    }
}

/// Returns the Python of the suite's client, with gRPC. TANDEM_PYTHON names another.
pub(crate) fn clients(layout: &Layout) -> Result<PathBuf> {
    if let Some(chosen) = env::var_os("TANDEM_PYTHON") {
        return Ok(chosen.into());
    }
    let list = layout.root().join("tests/clients/python/requirements.txt");
    Ok(Venv::ensure(layout, "venv", &read(&list)?)?.python())
}

/// Returns the Python with the engines that tests and benchmarks put behind the bridge.
pub(crate) fn engines(layout: &Layout) -> Result<PathBuf> {
    let list = layout.root().join("tests/suite/bridge/requirements.txt");
    Ok(Venv::ensure(layout, "engines", &read(&list)?)?.python())
}

/// Returns buf, the linter and generator of protos.
pub(crate) fn buf(layout: &Layout) -> Result<PathBuf> {
    Venv::ensure(layout, "buf", BUF)?.program("buf")
}

/// Returns the Python with schemas of Kubernetes' objects.
pub(crate) fn schemas(layout: &Layout) -> Result<PathBuf> {
    let list = layout.root().join("deploy/chart-tools/requirements.txt");
    Ok(Venv::ensure(layout, "schemas", &read(&list)?)?.python())
}

/// Returns the environment with transformers, the reference for rendering.
pub(crate) fn transformers(layout: &Layout) -> Result<Venv> {
    let list = layout.root().join("tests/differential/requirements.txt");
    Venv::ensure(layout, "transformers", &read(&list)?)
}

/// Returns the environment with llama.cpp, transformers and torch, the references for generation.
pub(crate) fn reference(layout: &Layout) -> Result<Venv> {
    let list = layout.root().join("tests/bench/requirements.txt");
    Venv::ensure_with(layout, "reference", &read(&list)?, Scope::Dependencies)
}

/// Returns the environment with another system that `cargo xtask bench generate` compares with. In
/// its list, `${PEERS}` is the folder of the list.
pub(crate) fn peer(layout: &Layout, system: &str) -> Result<Venv> {
    let folder = layout.root().join("tests/bench/peers");
    let list = read(&folder.join(format!("{system}.txt")))?;
    let list = list.replace("${PEERS}", &folder.to_string_lossy());
    Venv::ensure_with(layout, system, &list, Scope::Dependencies)
}

/// Makes an environment without pip, because some distributions package that part of venv
/// separately.
fn make_empty(python: &Python, folder: &Path) -> Result<()> {
    let status =
        python.command().args(["-m", "venv", "--without-pip"]).arg(folder).status().context("cannot run python")?;
    if !status.success() {
        bail!(
            "Python cannot make a virtual environment; see its messages above (your system's package may be python3-venv)"
        );
    }
    Ok(())
}

/// Installs with the system's pip, whose Python has the environment's version.
fn fill(python: &Python, packages: &Path, requirements: &str, scope: Scope) -> Result<()> {
    let list = packages.join("requirements.partial");
    write(&list, requirements)?;
    let mut pip = python.pip();
    pip.args(["install", "--quiet", "--target"]).arg(packages).arg("--requirement").arg(&list);
    if scope == Scope::Listed {
        pip.args(["--no-deps", "--only-binary=:all:"]);
    }
    pip.env("PIP_ROOT_USER_ACTION", "ignore"); // The warning is about system folders, which stay unchanged.
    if !pip.status().context("cannot run pip")?.success() {
        bail!("pip cannot install these; see its messages above:\n{requirements}");
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

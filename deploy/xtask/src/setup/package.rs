//! Packages: fetched once, checked, and unpacked.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};

use super::npm::Npm;
use super::pins::Package;
use super::pip;
use super::python::{Failure, Python};
use crate::files::{make_folder, remove_folder, rename};

const UNPACK: &str = include_str!("unpack.py");

/// The folder that packages are fetched into. A file with a package's own name is complete.
#[derive(Debug)]
pub(super) struct Store {
    folder: PathBuf,
    python: Python,
    npm: Npm,
}

impl Store {
    pub(super) fn new(folder: PathBuf, python: Python) -> Self {
        Self { folder, python, npm: Npm::system() }
    }

    /// The same with another npm.
    pub(super) fn with_npm(self, npm: Npm) -> Self {
        Self { npm, ..self }
    }

    /// Fetches a package, unless it is there, and unpacks the files that its rules name into
    /// `folder`.
    pub(super) fn unpack(&self, package: &Package, folder: &Path) -> Result<()> {
        let path = self.fetch(package)?;
        make_folder(folder)?;
        let fixed = [path.as_os_str(), package.sha256.as_ref(), folder.as_os_str()];
        let arguments = fixed.into_iter().chain(package.rules.iter().map(AsRef::as_ref));
        match self.python.script(UNPACK, arguments)? {
            Ok(()) => Ok(()),
            Err(failure) => self.fail(failure, package, &path),
        }
    }

    /// Removes the packages, which nothing needs once they are unpacked.
    pub(super) fn clear(&self) {
        if let Err(error) = remove_folder(&self.folder) {
            eprintln!("warning: {error:#}");
        }
    }

    /// Returns the package's file. The file gets its name once it is complete, so that an
    /// interrupted command keeps the packages before it.
    fn fetch(&self, package: &Package) -> Result<PathBuf> {
        let path = self.folder.join(package.file);
        if !path.exists() {
            let incoming = self.folder.join("incoming");
            remove_folder(&incoming)?;
            make_folder(&incoming)?;
            let fetched = if package.is_wheel() {
                pip::download(&self.python, package, &incoming)?
            } else {
                self.npm.download(package, &incoming)?
            };
            rename(&fetched, &path)?;
        }
        Ok(path)
    }

    /// Returns the folder of the packages.
    pub(super) fn folder(&self) -> &Path {
        &self.folder
    }

    fn fail(&self, failure: Failure, package: &Package, path: &Path) -> Result<()> {
        let file = package.file;
        match failure {
            Failure::Disk(reason) => {
                bail!(
                    "cannot write the files of {file}: {reason}. Make room, or correct the folder's rights, and repeat the command"
                )
            }
            Failure::Unexpected(reason) => bail!("cannot unpack {file}: {reason}"),
            Failure::Hash(found) => {
                fs::remove_file(path).with_context(|| format!("cannot remove {}", path.display()))?;
                bail!(
                    "{file} has SHA-256 {found}, expected {}: the registry or a proxy serves another file under this name, or the download was damaged; repeat the command",
                    package.sha256
                )
            }
        }
    }
}

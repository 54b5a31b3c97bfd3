//! Facts of ELF files, as binutils and ldd report them.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Result, bail};

use crate::output::output_of;

/// The libraries of glibc, which a machine of the same kind has.
const SYSTEM: [&str; 10] =
    ["ld-linux", "libanl.", "libc.", "libdl.", "libm.", "libmvec.", "libpthread.", "libresolv.", "librt.", "libutil."];

/// A library that a program loads at its start.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Library {
    pub(crate) path: PathBuf,
    /// True for the libraries and the loader of glibc.
    pub(crate) is_system: bool,
}

/// Returns the libraries that a program loads at its start. `folder` is searched where the program
/// names no other.
pub(crate) fn libraries(program: &Path, folder: &Path) -> Result<Vec<Library>> {
    let listed = output_of(Command::new("ldd").arg(program).env("LD_LIBRARY_PATH", folder))?;
    let mut found = Vec::new();
    for line in listed.lines().map(str::trim).filter(|line| !line.starts_with("linux-vdso")) {
        let (name, path) = line.split_once(" => ").unwrap_or((line, line));
        let path = path.split(" (").next().unwrap_or_default();
        if !path.starts_with('/') {
            bail!("{} needs {name}, which ldd does not find", program.display());
        }
        let name = name.rsplit('/').next().unwrap_or(name);
        let is_system = SYSTEM.iter().any(|prefix| name.starts_with(prefix));
        found.push(Library { path: PathBuf::from(path), is_system });
    }
    Ok(found)
}

/// Returns the folders in which a program searches libraries, without those relative to the program.
pub(crate) fn foreign_folders(program: &Path) -> Result<Vec<String>> {
    let dynamic = output_of(Command::new("readelf").args(["--dynamic", "--wide"]).arg(program))?;
    let paths = dynamic.lines().filter(|line| line.contains("(RPATH)") || line.contains("(RUNPATH)"));
    let folders =
        paths.filter_map(|line| line.split_once('[')?.1.split_once(']')).flat_map(|(list, _)| list.split(':'));
    Ok(folders.filter(|folder| !folder.starts_with("$ORIGIN")).map(str::to_owned).collect())
}

/// Returns the newest version of glibc that a file needs, as major and minor number.
pub(crate) fn glibc(file: &Path) -> Result<(u32, u32)> {
    let versions = output_of(Command::new("readelf").args(["--version-info", "--wide"]).arg(file))?;
    let named = versions.split("GLIBC_").skip(1).filter_map(|rest| {
        let number = rest.split(|char: char| !char.is_ascii_digit() && char != '.').next()?;
        let (major, minor) = number.split_once('.')?;
        let minor = minor.split('.').next()?;
        Some((major.parse().ok()?, minor.parse().ok()?))
    });
    Ok(named.max().unwrap_or_default())
}
